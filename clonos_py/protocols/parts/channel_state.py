"""Channel state: a snapshot is stored with the frames in flight between it and the snapshots of its receivers (E3).

    taken --all receivers have taken theirs--> complete --frames on disk are read--> to be made durable
      any --abort--> nothing

A receiver may take its snapshot of the same checkpoint before it has received all frames that this task cut before its
own. It reports its position. The frames from there to the barrier of this task belong to neither snapshot. The
in-flight log of the sender retains them, and the sender stores them. A frame is written once: later snapshots refer to
it.

With aligned barriers only feedback channels hold frames between snapshots (E11; Carbone et al., Lightweight
asynchronous snapshots, for cyclic graphs). The head of a loop takes its snapshot when it has the barriers of all
channels that enter the loop. When the barriers reach the last task of the loop, that task takes its own, and stores
the frames that it has cut for the head since the head's snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from clonos_py.channel.frames import FrameCodec
from clonos_py.channel.retained import RetainedFrame, record_of
from clonos_py.link import instructions as io
from clonos_py.link.checkpointing import LinkCheckpointing
from clonos_py.link.sending import OutputChannel
from clonos_py.model.ids import Attempt, ChannelId
from clonos_py.model.plan import Edge, PhysicalPlan
from clonos_py.model.snapshots import FrameRun, StoredFrames, TaskHandle, TaskSnapshot
from clonos_py.process.contract import TaskProgress

RUN_BYTES = 4 << 20
"""Frames are stored together up to this size. Whole runs are read and retained later."""
_Fresh = list[RetainedFrame]
"""Consecutive frames that are to be stored together."""


@dataclass
class _Pending:
    """A snapshot that is not complete yet. ``ends``: by output, the number of the first frame after it."""

    snapshot: TaskSnapshot
    attempt: Attempt
    ends: Sequence[int]
    parts: dict[int, list[StoredFrames | _Fresh]] = field(default_factory=dict)
    """By output: the frames to store; empty until all receivers have reported."""
    unread: set[tuple[int, int]] = field(default_factory=set)
    """(output, sequence number) of the frames that are on disk and not read back yet."""
    bodies: dict[tuple[int, int], Any] = field(default_factory=dict)
    """By (output, sequence number): bodies in memory, kept here even if the in-flight log spills them."""


def all_edges(edge: Edge) -> bool:
    return True


def feedback_edges(edge: Edge) -> bool:
    return edge.feedback


def not_covered(output: OutputChannel, checkpoint: int) -> int | None:
    """The first frame that the receiver's snapshot does not cover; None if the receiver has not reported it. If the
    receiver has received nothing since this task restarted without its log, it will begin where the in-flight log
    does."""
    if output.snapshot.checkpoint != checkpoint:
        return None
    return output.snapshot.next_seq if output.snapshot.next_seq >= 0 else output.frames.first


class ChannelState(LinkCheckpointing):
    """Completes one snapshot at a time: a later one replaces an earlier one that is not complete."""

    def __init__(
        self,
        plan: PhysicalPlan,
        outputs: Sequence[OutputChannel],
        codec: FrameCodec,
        edges: Callable[[Edge], bool] = all_edges,
        start: Callable[[OutputChannel, int], int | None] = not_covered,
    ) -> None:
        """``edges``: those whose frames are stored. ``start``: the first frame of a channel to store with a checkpoint;
        None while it is not known."""
        self._codec, self._start = codec, start
        self._stores = [edges(edge) for edge in plan.edges]
        self._outputs = [output for output in outputs if output.retain and self._stores[output.channel.edge]]
        self._schemas = {output.index: plan.edges[output.channel.edge].schema for output in self._outputs}
        self._pending: _Pending | None = None
        self._stored: Mapping[int, Sequence[StoredFrames]] = {}
        """By output: frames that are stored already, in order."""

    def restored(self, frames: Mapping[int, Sequence[StoredFrames]]) -> None:
        self._stored = frames

    def reports(self, channel: ChannelId) -> bool:
        return self._stores[channel.edge]

    def snapshot_taken(self, snapshot: TaskSnapshot, progress: TaskProgress, attempt: Attempt) -> list[io.Instruction]:
        self._pending = _Pending(snapshot, attempt, progress.outputs)
        return self.reported()

    def reported(self) -> list[io.Instruction]:
        pending = self._pending
        if pending is None or pending.parts:
            return []
        checkpoint = pending.snapshot.checkpoint
        starts = [start for output in self._outputs if (start := self._start(output, checkpoint)) is not None]
        if len(starts) < len(self._outputs):
            return []
        reads: list[io.Instruction] = []
        for output, start in zip(self._outputs, starts, strict=True):
            # may be empty: the receiver's restart point may have moved past all of them
            parts = pending.parts[output.index] = list(self._parts(output, start, pending.ends[output.index]))
            fresh = [entry for part in parts if not isinstance(part, StoredFrames) for entry in part]
            pending.bodies.update({(output.index, e.frame.seq): e.body for e in fresh if e.in_memory})
            places = [(e.frame.seq, e.place) for e in fresh if not e.in_memory]
            if places:
                pending.unread.update((output.index, seq) for seq, _ in places)
                reads.append(io.ReadFrames(output.index, places, checkpoint))
        return reads or self._persist(pending)

    def _parts(self, output: OutputChannel, start: int, stop: int) -> Iterator[StoredFrames | _Fresh]:
        """The frames [start, stop), divided into those already stored and those between them."""
        at = start
        for stored in self._stored.get(output.index, ()):
            first, last = max(stored.start, at), min(stored.stop, stop)
            if first < last:
                yield from _together(output.frames.between(at, first))
                rows = sum(entry.row_count for entry in output.frames.between(first, last))
                yield StoredFrames(stored.location, first, last, rows)
                at = last
        if at < stop:
            yield from _together(output.frames.between(at, stop))

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
            index: [part if isinstance(part, StoredFrames) else self._run(index, part, pending) for part in parts]
            for index, parts in pending.parts.items()
            if parts
        }
        return [io.Persist(replace(pending.snapshot, frames=frames), pending.attempt)]

    def _run(self, index: int, entries: _Fresh, pending: _Pending) -> FrameRun:
        kept = [pending.bodies[index, entry.frame.seq] for entry in entries]
        bodies = [self._codec.message(body) if body is not None else None for body in kept]
        records = [record_of(entry, body.size if body else 0) for entry, body in zip(entries, bodies, strict=True)]
        return FrameRun(self._schemas[index], records, bodies)

    def persisted(self, handle: TaskHandle) -> list[io.Instruction]:
        self._stored = handle.frames
        return []

    def abort(self, checkpoint: int) -> None:
        if self._pending is not None and self._pending.snapshot.checkpoint == checkpoint:
            self._pending = None


def _together(entries: Iterable[RetainedFrame]) -> Iterator[_Fresh]:
    """Consecutive frames, divided into parts of about ``RUN_BYTES`` at most."""
    part: _Fresh = []
    size_bytes = 0
    for entry in entries:
        part.append(entry)
        size_bytes += entry.size_bytes
        if size_bytes >= RUN_BYTES:
            yield part
            part, size_bytes = [], 0
    if part:
        yield part
