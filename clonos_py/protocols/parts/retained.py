"""Uncoordinated snapshots: each is stored with the frames and determinants between it and other snapshots (E5, E8).

Frames that no restart point of their receivers covers are stored with the sender's snapshot, because a receiver that
restarts may request them. Determinants of upstream tasks are stored with the receiver's snapshot, because its state
depends on what these tasks decided after their own restart points. If all of these tasks fail, their logs are found
here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from clonos_py.channel.frames import FrameCodec
from clonos_py.link import instructions as io
from clonos_py.link.checkpointing import LinkCheckpointing
from clonos_py.link.sending import OutputChannel
from clonos_py.model.ids import Attempt
from clonos_py.model.plan import PhysicalPlan
from clonos_py.model.snapshots import StoredFrames, TaskHandle, TaskSnapshot
from clonos_py.process.contract import TaskProgress
from clonos_py.protocols.parts.channel_state import ChannelState


def all_retained(output: OutputChannel, checkpoint: int) -> int:
    """The first frame that the in-flight log holds: no restart point of the receiver covers it."""
    return output.frames.first


class RetainedState(LinkCheckpointing):
    """Snapshots that do not wait for those of receivers; one is completed at a time. None is taken while logs that its
    state depends on may be incomplete, and none is ever void."""

    def __init__(self, plan: PhysicalPlan, outputs: Sequence[OutputChannel], codec: FrameCodec) -> None:
        self._frames = ChannelState(plan, outputs, codec, start=all_retained)
        self._busy = False
        """Whether a snapshot is being completed or made durable. Until then the places of its frames are not known."""
        self._later: tuple[TaskSnapshot, TaskProgress, Attempt] | None = None
        """The newest snapshot that was taken while another was being completed."""

    def restored(self, frames: Mapping[int, Sequence[StoredFrames]]) -> None:
        self._frames.restored(frames)

    def snapshot_taken(self, snapshot: TaskSnapshot, progress: TaskProgress, attempt: Attempt) -> list[io.Instruction]:
        if self._busy:
            self._later = snapshot, progress, attempt
            return []
        self._busy = True
        return self._frames.snapshot_taken(snapshot, progress, attempt)

    def read(self, event: io.FramesRead) -> list[io.Instruction]:
        return self._frames.read(event)

    def persisted(self, handle: TaskHandle) -> list[io.Instruction]:
        self._frames.persisted(handle)
        return self._start_next()

    def not_persisted(self) -> list[io.Instruction]:
        return self._start_next()

    def _start_next(self) -> list[io.Instruction]:
        self._busy = False
        later, self._later = self._later, None
        return [] if later is None else self.snapshot_taken(*later)
