"""The task side of uncoordinated checkpoints: each task takes its snapshots independently (E5).

There are no barriers, and no task waits for another. What lies between the snapshots of two tasks is stored with them:
the sender's frames, and the determinants of other tasks that the receiver holds.
"""

from __future__ import annotations

from clonos_py.model.errors import ProtocolError
from clonos_py.task.checkpointing.interface import TaskCheckpointing


class OwnSnapshots(TaskCheckpointing):
    """A task takes a snapshot at each trigger of the coordinator. The trigger is an event of the log."""

    barriers = False

    def barrier(self, channel: int, checkpoint: int, epoch: int) -> bool:
        raise ProtocolError(f"input {channel} brought a barrier of checkpoint {checkpoint}, where there are none")

    def restore(self, state: bytes) -> None:
        """This protocol has no state."""
