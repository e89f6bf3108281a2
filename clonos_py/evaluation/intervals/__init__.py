"""Checkpoint intervals: the model checked by simulation."""
