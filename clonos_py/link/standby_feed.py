"""The feed of a task's standbys, on the side of the task (E17).

    subscribed --frames before the subscription covered or sent--> ready --feed point taken and sent--> behind
    behind --the standby's task has loaded the point--> ready

Frames are sent to a standby when they are cut, state when a feed point is taken. The next point is requested when all
standbys have the last one, so that a slow standby gets fewer points and no queue of them. A new standby gets all state
with its first point. What a standby has is known per connection only.

A point of a task with causal sinks is sent when all pieces that they have published before it are visible: the process
that starts there does not publish them again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from clonos_py.causal.log import CausalStore
from clonos_py.channel.frames import Frame, FrameCodec, FrameHeader, FrameKind
from clonos_py.channel.retained import RetainedFrame, record_of
from clonos_py.link import instructions as io
from clonos_py.link.causal_outputs import CausalOutputs
from clonos_py.link.feed_parts import (
    ChunkPart,
    FramePart,
    OperatorPart,
    PointPart,
    TableRows,
    encode_part,
    feed_channel,
)
from clonos_py.link.recording import LogRecording
from clonos_py.link.sending import OutputChannel
from clonos_py.model.ids import Attempt, TaskId
from clonos_py.model.plan import PhysicalPlan
from clonos_py.model.state import Chunk, unchanged
from clonos_py.process.contract import FeedPointTaken, FeedRequested

_PARTS_IN_FLIGHT = 32
_BYTES_IN_FLIGHT = 8 << 20
_BYTES_QUEUED_MAX = 256 << 20
"""A standby that lets more wait is cut off; it begins again with the state of then."""


class _Part:
    """A part to be sent. ``pack``: encodes the body, when the part is sent."""

    __slots__ = ("kind", "meta", "pack", "size_bytes")

    def __init__(self, kind: FrameKind, meta: bytes, size_bytes: int, pack: Callable[[], Any]) -> None:
        self.kind, self.meta, self.size_bytes, self.pack = kind, meta, size_bytes, pack


class _Subscription:
    """One standby's connection: what was sent on it, and what is to be sent."""

    def __init__(self, connection: int, outputs: Sequence[OutputChannel]) -> None:
        self.connection = connection
        self.waits = [0] * len(outputs)
        """By output: frames below this number were on disk and are not sent: no point before they are covered."""
        self._parts: deque[_Part] = deque()
        self.queued_bytes = 0
        self._in_flight: deque[int] = deque()
        self._sent = self._acknowledged = 0
        self._loaded_at = 0
        """How many parts are acknowledged when the standby has loaded the last point."""
        self._tables: dict[tuple[str, str], Sequence[Chunk]] = {}
        """By operator and table: the chunks of the last point."""
        self._numbers: dict[int, tuple[Chunk, int]] = {}
        """By identity: the chunks of the last point with their numbers."""
        self._chunks = 0
        self._position = self._marks_carried = 0
        self._recorded = 0
        """The offset up to which the standby has the record."""

    def add_frame(self, output: int, entry: RetainedFrame) -> None:
        body, record = entry.body, record_of(entry, entry.size_bytes)
        meta = encode_part(FramePart(output, record, entry.checksum))
        self._add(FrameKind.FEED_FRAME, meta, entry.size_bytes, lambda: body)

    def add_point(
        self,
        event: FeedPointTaken,
        committables: dict[int, dict[str, list[bytes]]],
        first: list[int],
        codec: FrameCodec,
        recording: LogRecording | None,
    ) -> None:
        """``committables`` and ``first``: see ``PointPart``. ``recording``: of a task whose log is only recorded."""
        numbers: dict[int, tuple[Chunk, int]] = {}
        tables: dict[tuple[str, str], Sequence[Chunk]] = {}
        operators: dict[str, OperatorPart] = {}
        for name, state in event.operators.items():
            parts: dict[str, TableRows] = {}
            for table, chunks in state.tables.items():
                kept = unchanged(self._tables.get((name, table), ()), chunks)
                for chunk in chunks:
                    known = numbers.get(id(chunk)) or self._numbers.get(id(chunk))
                    numbers[id(chunk)] = known or self._new(chunk, codec)
                parts[table] = TableRows(kept, [numbers[id(chunk)][1] for chunk in chunks[kept:]])
                tables[name, table] = list(chunks)
            operators[name] = OperatorPart(parts, msgspec.msgpack.encode(state.values))
        self._tables, self._numbers = tables, numbers
        record = recording.since(self._recorded) if recording is not None else []
        self._recorded = event.position.offset
        meta = encode_part(
            PointPart(operators, event.progress, event.position, list(event.aborted), committables, first, record)
        )
        self._add(FrameKind.FEED_POINT, meta, len(meta), lambda: None)
        self._loaded_at = self._sent + len(self._parts)

    def _new(self, chunk: Chunk, codec: FrameCodec) -> tuple[Chunk, int]:
        self._chunks += 1
        meta, rows = encode_part(ChunkPart(self._chunks)), chunk.rows
        self._add(FrameKind.FEED_CHUNK, meta, rows.nbytes, lambda: codec.pack(rows))
        return chunk, self._chunks

    def _add(self, kind: FrameKind, meta: bytes, size_bytes: int, pack: Callable[[], Any]) -> None:
        self._parts.append(_Part(kind, meta, size_bytes, pack))
        self.queued_bytes += size_bytes

    def acknowledge(self, below: int) -> None:
        """The standby has the parts below this number. The last part of a point is acknowledged when it is loaded."""
        while self._in_flight and self._acknowledged < below:
            self._acknowledged += 1
            self._in_flight.popleft()

    @property
    def behind(self) -> bool:
        """Whether a point was sent that the standby has not loaded."""
        return self._acknowledged < self._loaded_at

    def sendable(self, store: CausalStore) -> Iterable[io.SendFrame]:
        """The parts to send now."""
        while self._parts and len(self._in_flight) < _PARTS_IN_FLIGHT and sum(self._in_flight) < _BYTES_IN_FLIGHT:
            part = self._parts.popleft()
            self.queued_bytes -= part.size_bytes
            self._in_flight.append(part.size_bytes)
            delta = store.since(self._position, lambda log: True)
            marks = store.marks_since(self._marks_carried)
            self._position, self._marks_carried = store.position, store.marks_taken
            seq, self._sent = self._sent, self._sent + 1
            header = FrameHeader(seq, part.kind, 0, 0, False, 0, 0, 0, 0, marks, delta, meta=part.meta)
            yield io.SendFrame(self.connection, header, part.pack())


class StandbyFeed:
    """The feeds of one link."""

    def __init__(
        self,
        plan: PhysicalPlan,
        task: TaskId,
        outputs: Sequence[OutputChannel],
        store: CausalStore,
        codec: FrameCodec,
        causal_outputs: CausalOutputs,
        recording: LogRecording,
    ) -> None:
        self._recording = recording if plan.recorded and not plan.logged(task) else None
        """That of a task whose log is only recorded: no standby gets it with other logs."""
        self._job, self._channel, self._feeds = plan.job, feed_channel(task), plan.feeds(task)
        self._outputs, self._store, self._codec = outputs, store, codec
        self._causal_outputs = causal_outputs
        self._subscriptions: dict[int, _Subscription] = {}
        """By connection."""
        self.sent_bytes = 0
        """Bytes sent to standbys, determinants not counted."""
        self._requested = False
        """Whether the task was asked for a point that was not sent yet."""
        self._unsent: tuple[FeedPointTaken, dict[int, dict[str, list[bytes]]]] | None = None
        """The point that was taken, with what sinks had prepared by then, while pieces before it are not visible."""

    def is_for(self, hello: io.Hello) -> bool:
        return hello.channel == self._channel

    def subscribed(self, event: io.Subscribed, attempt: Attempt | None) -> list[io.Instruction]:
        """A standby has subscribed to the feed of ``hello.sender``; this process has begun as ``attempt``. Else
        the standby tries again."""
        if not self._feeds or event.hello.job != self._job or event.hello.sender != attempt:
            return [io.Disconnect(event.connection)]
        new = self._subscriptions[event.connection] = _Subscription(event.connection, self._outputs)
        for output in self._outputs:
            entries = list(output.frames.between(output.frames.first, output.frames.next_seq))
            if all(entry.in_memory for entry in entries):
                for entry in entries:
                    new.add_frame(output.index, entry)
            else:
                new.waits[output.index] = output.frames.next_seq
        return self._pump(new)

    def lost(self, connection: int) -> None:
        self._subscriptions.pop(connection, None)

    def cut(self, frames: Sequence[tuple[int, Frame]]) -> list[io.Instruction]:
        """The task has cut frames, which are retained."""
        out: list[io.Instruction] = []
        for subscription in list(self._subscriptions.values()):
            for index, frame in frames:
                retained = self._outputs[index].frames
                if frame.seq >= retained.first:  # else it is covered already
                    subscription.add_frame(index, retained.entry(frame.seq))
            out += self._pump(subscription)
        return out

    def taken(self, event: FeedPointTaken, committables: dict[int, dict[str, list[bytes]]]) -> list[io.Instruction]:
        """The task has taken a feed point. ``committables``: see ``PointPart``."""
        self._unsent = event, committables
        return self.written()

    def written(self) -> list[io.Instruction]:
        """Sends the point that was taken, if all that causal sinks have published before it is visible."""
        if self._unsent is None or not self._causal_outputs.written_below(self._unsent[0].progress.published):
            return []
        (event, committables), self._unsent, self._requested = self._unsent, None, False
        out: list[io.Instruction] = []
        first = [output.frames.first for output in self._outputs]
        for subscription in self._ready() if not self._store.incomplete else ():
            subscription.add_point(event, committables, first, self._codec, self._recording)
            out += self._pump(subscription)
        return out + self.request()

    def acknowledged(self, event: io.Acknowledged) -> list[io.Instruction]:
        """A standby, or a receiver, has acknowledged something."""
        subscription = self._subscriptions.get(event.connection)
        if subscription is None:
            return self.request()
        subscription.acknowledge(event.acknowledgement.next_seq)
        return self._pump(subscription) + self.request()

    def logs_arrived(self) -> list[io.Instruction]:
        """Logs have arrived that the process lacked. Standbys get nothing while some are missing: they would report
        logs as whole that are not."""
        pumped = [i for subscription in list(self._subscriptions.values()) for i in self._pump(subscription)]
        return pumped + self.request()

    def request(self) -> list[io.Instruction]:
        """Asks the task for a point if all standbys have the last one."""
        if not self._subscriptions:
            return []
        ready = self._ready()
        if self._requested or len(ready) < len(self._subscriptions) or self._store.incomplete:
            return []
        self._requested = True
        return [io.SendToTask(FeedRequested())]

    def _ready(self) -> list[_Subscription]:
        return [
            subscription
            for subscription in self._subscriptions.values()
            if not subscription.behind
            and all(output.frames.first >= subscription.waits[output.index] for output in self._outputs)
        ]

    def _pump(self, subscription: _Subscription) -> list[io.Instruction]:
        if self._store.incomplete:
            return []
        if subscription.queued_bytes > _BYTES_QUEUED_MAX:
            del self._subscriptions[subscription.connection]
            return [io.Disconnect(subscription.connection)]
        queued_bytes = subscription.queued_bytes
        parts: list[io.Instruction] = list(subscription.sendable(self._store))
        self.sent_bytes += queued_bytes - subscription.queued_bytes
        return parts
