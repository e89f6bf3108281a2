"""Communication-induced checkpoints: a task also takes a snapshot before frames that could make one useless (E10)."""
