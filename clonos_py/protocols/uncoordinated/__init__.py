"""Uncoordinated checkpoints: each task takes its snapshots alone, when the coordinator triggers it (E5)."""
