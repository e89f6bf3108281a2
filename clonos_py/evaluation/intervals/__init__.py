"""Checkpoint intervals: what a run says about them, tables and plots of the model."""
