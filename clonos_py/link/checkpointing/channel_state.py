"""Channel state: a snapshot is stored together with the frames that are under way between it and its receivers' (E3).

    taken --all receivers have taken theirs--> complete --what lies on disk is read--> to be made durable
      any --abort--> nothing

A receiver may have taken its snapshot of the same checkpoint before it got all frames that this task had cut before its
own. It says where it was. The frames from there to the barrier of this task belong to neither snapshot; the in-flight
log of the sender retains them, and the sender stores them. A frame is written once: later snapshots refer to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from clonos_py.channel.frames import FrameCodec
from clonos_py.channel.inflight import RetainedFrame
from clonos_py.link import instructions as io
from clonos_py.link.checkpointing.interface import LinkCheckpointing
from clonos_py.link.sending import OutputChannel
from clonos_py.model.ids import Attempt
from clonos_py.model.plan import PhysicalPlan
from clonos_py.model.snapshots import StoredFrame, TaskHandle, TaskSnapshot
from clonos_py.model.state import Chunk
from clonos_py.process.contract import TaskProgress


@dataclass
class _Pending:
    """A snapshot that is not complete yet. ``ends``: by output, the number of the first frame after it."""

    snapshot: TaskSnapshot
    attempt: Attempt
    ends: Sequence[int]
    frames: dict[int, list[RetainedFrame]] = field(default_factory=dict)
    """By output, once it is known which."""
    unread: set[tuple[int, int]] = field(default_factory=set)
    """(output, sequence number) of those that lie on disk."""
    bodies: dict[tuple[int, int], Any] = field(default_factory=dict)
    """By (output, sequence number). Spilling does not take them away."""


class ChannelState(LinkCheckpointing):
    """Completes one snapshot at a time: a later one makes the earlier void."""

    reports_snapshots = True

    def __init__(self, plan: PhysicalPlan, outputs: Sequence[OutputChannel], codec: FrameCodec) -> None:
        super().__init__(plan, [output for output in outputs if output.retain], codec)
        self._schemas = {output.index: plan.edges[output.channel.edge].schema for output in self._outputs}
        self._pending: _Pending | None = None

    def snapped(self, snapshot: TaskSnapshot, progress: TaskProgress, attempt: Attempt) -> list[io.Instruction]:
        self._pending = _Pending(snapshot, attempt, progress.outputs)
        return self.reported()

    def reported(self) -> list[io.Instruction]:
        pending = self._pending
        if pending is None or pending.frames:
            return []
        checkpoint = pending.snapshot.checkpoint
        starts = [start for output in self._outputs if (start := self._start(output, checkpoint)) is not None]
        if len(starts) < len(self._outputs):
            return []
        reads: list[io.Instruction] = []
        for output, start in zip(self._outputs, starts, strict=True):
            end = pending.ends[output.index]
            # the receiver's restart point may have come to cover them all
            frames = list(output.log.between(start, end)) if start < end else []
            pending.frames[output.index] = frames
            fresh = [entry for entry in frames if entry.stored is None]
            pending.bodies.update({(output.index, e.frame.seq): e.body for e in fresh if e.here})
            places = [(e.frame.seq, e.place) for e in fresh if not e.here]
            if places:
                pending.unread.update((output.index, seq) for seq, _ in places)
                reads.append(io.ReadFrames(output.index, places, checkpoint))
        return reads or self._persist(pending)

    def _start(self, output: OutputChannel, checkpoint: int) -> int | None:
        """The first frame that the receiver's snapshot does not cover; None: not known yet. A receiver that has got
        nothing since this task restarted without its log will begin where the log does."""
        if output.snapshot.checkpoint != checkpoint:
            return None
        return output.snapshot.next_seq if output.snapshot.next_seq >= 0 else output.log.first

    def read(self, event: io.FramesRead) -> list[io.Instruction]:
        pending = self._pending
        if pending is None or pending.snapshot.checkpoint != event.checkpoint:
            return []
        for seq, body in event.bodies:
            pending.bodies[event.output, seq] = body
            pending.unread.discard((event.output, seq))
        return [] if pending.unread else self._persist(pending)

    def _persist(self, pending: _Pending) -> list[io.Instruction]:
        self._pending = None
        frames = {
            index: [self._to_store(index, entry, pending) for entry in entries]
            for index, entries in pending.frames.items()
            if entries
        }
        return [io.Persist(replace(pending.snapshot, frames=frames), pending.attempt)]

    def _to_store(self, index: int, entry: RetainedFrame, pending: _Pending) -> tuple[StoredFrame, Chunk | None]:
        f = entry.frame
        frame = StoredFrame(f.seq, f.kind, f.epoch, f.watermark, f.idle, f.checkpoint, f.stamp, entry.stored)
        if entry.stored is not None or not entry.size_bytes:
            return frame, None
        return frame, Chunk(self._codec.decode(pending.bodies[index, f.seq], self._schemas[index]))

    def persisted(self, handle: TaskHandle) -> list[io.Instruction]:
        for output in self._outputs:
            log = output.log
            frames = [frame for frame in handle.frames.get(output.index, ()) if log.first <= frame.seq < log.next_seq]
            if frames:
                for entry, frame in zip(log.between(frames[0].seq, frames[-1].seq + 1), frames, strict=True):
                    entry.stored = frame.rows
        return []

    def abort(self, checkpoint: int) -> None:
        if self._pending is not None and self._pending.snapshot.checkpoint == checkpoint:
            self._pending = None
