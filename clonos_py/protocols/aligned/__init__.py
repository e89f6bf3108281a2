"""Coordinated checkpoints with aligned barriers (Clonos, section 6; Flink; D7)."""
