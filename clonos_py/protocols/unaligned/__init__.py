"""Coordinated checkpoints in which no task waits for barriers; frames in flight are stored (E4).

All tasks are triggered at once, so a checkpoint takes only as long as the slowest task needs for its current event,
however many frames are queued before it.
"""
