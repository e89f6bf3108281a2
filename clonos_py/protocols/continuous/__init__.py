"""Continuous eventual checkpoints: each task saves windows and keys one by one, in a log of its own (E14)."""
