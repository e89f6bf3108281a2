"""Unaligned checkpoints on the side of a task (E4; Carbone et al., Lightweight asynchronous snapshots; Flink).

A task takes its snapshot when the coordinator calls, or when it takes the first barrier of the checkpoint, whichever
comes first. No channel waits. Frames that a sender cut before its barrier, and that are taken after the snapshot here,
belong to neither snapshot; the sender stores them (``link/checkpointing/channel_state.py``). Calls and barriers are
events of the log, so a replay takes its snapshots where its predecessor did.
"""

from __future__ import annotations

from clonos_py.task.checkpointing.interface import TaskCheckpointing


class UnalignedBarriers(TaskCheckpointing):
    """Barriers close the cut: no frame that its sender cut after its snapshot is taken before the snapshot here."""

    def barrier(self, channel: int, checkpoint: int, epoch: int) -> bool:
        return checkpoint > epoch and checkpoint not in self._calls.aborted

    def restore(self, state: bytes) -> None:
        """There is no state."""
