"""A checkpoint protocol on the side of a link: what must happen before the snapshot of a task can be made durable.

The side of the task is in ``task/checkpointing.py``, that of the coordinator in ``job/checkpointing.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from clonos_py.channel.frames import FrameCodec
from clonos_py.link import instructions as io
from clonos_py.link.sending import OutputChannel
from clonos_py.model.ids import Attempt, ChannelId
from clonos_py.model.plan import PhysicalPlan
from clonos_py.model.snapshots import StoredFrames, TaskHandle, TaskSnapshot
from clonos_py.process.contract import TaskProgress


class LinkCheckpointing:
    """The checkpoint protocol of one link. This class makes every snapshot durable at once, which is enough where no
    frames lie between snapshots."""

    def __init__(self, plan: PhysicalPlan, outputs: Sequence[OutputChannel], codec: FrameCodec) -> None:
        """``outputs``: all output channels of the task."""

    def restored(self, frames: Mapping[int, Sequence[StoredFrames]]) -> None:
        """The task starts from a restart point with which these frames are stored, by output channel."""

    def reports(self, channel: ChannelId) -> bool:
        """Whether the receiver of a channel reports the position of its last snapshot to its sender."""
        return False

    def snapshot_taken(self, snapshot: TaskSnapshot, progress: TaskProgress, attempt: Attempt) -> list[io.Instruction]:
        """The task has taken a snapshot."""
        return [io.Persist(snapshot, attempt)]

    def reported(self) -> list[io.Instruction]:
        """A receiver has reported its snapshot (``OutputChannel.snapshot``)."""
        return []

    def read(self, event: io.FramesRead) -> list[io.Instruction]:
        """Frames have been read back that were requested for a snapshot."""
        return []

    def persisted(self, handle: TaskHandle) -> list[io.Instruction]:
        """A snapshot is durable."""
        return []

    def not_persisted(self) -> list[io.Instruction]:
        """A snapshot could not be made durable. The coordinator ends the job if the report reaches it, unless storage
        did not answer: then the task goes on, and later snapshots may become durable."""
        return []

    def abort(self, checkpoint: int) -> None:
        """The checkpoint is void."""


LinkSide = Callable[[PhysicalPlan, Sequence[OutputChannel], FrameCodec], LinkCheckpointing]
"""Creates the link side of a protocol."""
