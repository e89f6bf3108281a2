"""A checkpoint protocol on the side of a link: what has to happen before the snapshot of a task can be made durable.

The side of the task is in ``task/checkpointing/interface.py``, that of the coordinator in
``job/protocols/interface.py``. This base class is enough for a protocol whose snapshots have no frames between them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from clonos_py.channel.frames import FrameCodec
from clonos_py.link import instructions as io
from clonos_py.link.sending import OutputChannel
from clonos_py.model.ids import Attempt, ChannelId
from clonos_py.model.plan import PhysicalPlan
from clonos_py.model.snapshots import StoredFrames, TaskHandle, TaskSnapshot
from clonos_py.process.contract import TaskProgress


class LinkCheckpointing:
    """One per link."""

    barriers = True
    """Whether a snapshot ends its epoch with a barrier on every output channel."""
    stamped = False
    """Whether frames carry stamps of the tasks' sides."""
    stores_logs = False
    """Whether a snapshot holds the determinants of upstream tasks on which its state depends."""

    def __init__(self, plan: PhysicalPlan, outputs: Sequence[OutputChannel], codec: FrameCodec) -> None:
        self._plan, self._outputs, self._codec = plan, outputs, codec

    def restored(self, frames: Mapping[int, Sequence[StoredFrames]]) -> None:
        """The task begins at a restart point with which these frames are stored, by output channel."""

    def reports(self, channel: ChannelId) -> bool:
        """Whether the receiver of a channel reports to its sender where it took its last snapshot."""
        return False

    def snapped(self, snapshot: TaskSnapshot, progress: TaskProgress, attempt: Attempt) -> list[io.Instruction]:
        """The task has taken a snapshot."""
        return [io.Persist(snapshot, attempt)]

    def reported(self) -> list[io.Instruction]:
        """A receiver has reported its snapshot (``OutputChannel.snapshot``)."""
        return []

    def read(self, event: io.FramesRead) -> list[io.Instruction]:
        """Frames are back that were to be read for a snapshot."""
        return []

    def persisted(self, handle: TaskHandle) -> list[io.Instruction]:
        """A snapshot is durable."""
        return []

    def not_persisted(self) -> list[io.Instruction]:
        """A snapshot could not be made durable. The coordinator ends the job, if it hears of it."""
        return []

    def abort(self, checkpoint: int) -> None:
        """The checkpoint is void."""
