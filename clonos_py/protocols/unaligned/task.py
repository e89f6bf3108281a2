"""The task side of unaligned checkpoints (E4; Carbone et al., Lightweight asynchronous snapshots; Flink).

A task takes its snapshot when the coordinator triggers it, or when it takes the first barrier of the checkpoint,
whichever comes first. No channel is blocked. Frames that a sender cut before its barrier, and that this task takes
after its snapshot, belong to neither snapshot; the sender stores them as channel state
(``protocols/parts/channel_state.py``). Triggers and barriers are events of the log, so a replay takes its snapshots
where its predecessor did.
"""

from __future__ import annotations

from clonos_py.task.checkpointing import TaskCheckpointing


class UnalignedBarriers(TaskCheckpointing):
    """Barriers make the cut consistent: no frame that was cut after its sender's snapshot is taken before the
    receiver's."""

    def barrier(self, channel: int, checkpoint: int, epoch: int) -> bool:
        return checkpoint > epoch and checkpoint not in self.triggers.aborted
