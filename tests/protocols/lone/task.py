"""The side of a task: a call of the coordinator is the snapshot."""

from __future__ import annotations

from clonos_py.model.errors import ProtocolError
from clonos_py.task.checkpointing.interface import TaskCheckpointing


class LoneSnapshots(TaskCheckpointing):
    """Frames carry no stamp, and no channel waits."""

    barriers = False

    def barrier(self, channel: int, checkpoint: int, epoch: int) -> bool:
        raise ProtocolError(f"input {channel} brought a barrier of checkpoint {checkpoint}, where there are none")

    def restore(self, state: bytes) -> None:
        """There is no state."""
