"""The feed of a task, on the side of a standby (E17).

A standby subscribes to the process that is its task, and passes each feed point to its own task to load. It takes the
determinants that come with the parts into its store, as a receiver does. When it is promoted, it starts at the last
point that its task was given, and reports what it holds in the round, as the process of a causal sink does.

A point is of use only to the next attempt of the task, and only if the last completed checkpoint does not lie behind
it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from clonos_py.causal.log import CausalStore
from clonos_py.channel.frames import FrameHeader, FrameKind
from clonos_py.channel.retained import RetainedFrame, frame_of
from clonos_py.link import instructions as io
from clonos_py.link.feed_parts import ChunkPart, FramePart, PointPart, decode_part, feed_channel
from clonos_py.model.errors import CodecError, ProtocolError
from clonos_py.model.ids import Attempt, TaskId
from clonos_py.model.messages import Follow
from clonos_py.model.plan import PhysicalPlan
from clonos_py.model.segments import LogSegment
from clonos_py.model.snapshots import FrameRecord
from clonos_py.model.state import Chunk, OperatorState
from clonos_py.process.contract import FeedPosition, RestoreState, TaskProgress

_ACKNOWLEDGED_AT_ONCE = 8


class FeedState(NamedTuple):
    """The state of a feed point. ``frames``: by output, those that receivers may still request. ``record``: the log of
    a task that is only recorded, from its restart point to this one."""

    position: FeedPosition
    progress: TaskProgress
    operators: Mapping[str, OperatorState]
    frames: list[list[RetainedFrame]]
    committables: dict[int, dict[str, list[bytes]]]
    record: list[LogSegment]


class Following:
    """What one standby has received of its task's feed."""

    def __init__(self, plan: PhysicalPlan, task: TaskId, store: CausalStore) -> None:
        self._job, self._channel, self._store = plan.job, feed_channel(task), store
        self._log = task.log_id
        self.input = len(plan.inputs[task])
        """The number of the feed among the inputs: the one after the last."""
        self._outputs = len(plan.outputs[task])
        self._followed: Follow | None = None
        self._attempt: Attempt | None = None
        """The attempt of which ``point`` and the determinants in the store are."""
        self.connection: int | None = None
        self.point: FeedState | None = None
        """The last point that was passed to the task."""
        self._begin()

    def _begin(self) -> None:
        """A connection begins: everything comes again."""
        self._chunks: dict[int, Chunk] = {}
        self._tables: dict[tuple[str, str], list[Chunk]] = {}
        self._frames: list[list[RetainedFrame]] = [[] for _ in range(self._outputs)]
        self._record: list[LogSegment] = []
        self._received = self._loading = 0

    # ---- the connection

    def follow(self, message: Follow) -> list[io.Instruction]:
        """Subscribes to an attempt of the task. What another one has sent is of no use any more."""
        if message == self._followed:
            return []
        out = self.leave()
        if message.attempt != self._attempt:
            self.forget()
        self._followed, self._attempt = message, message.attempt
        return [*out, self._connect(message)]

    def forget(self) -> None:
        """What was received is of no use."""
        self._store.clear()
        self.point = self._attempt = None

    def leave(self) -> list[io.Instruction]:
        """Ends the connection for good. What the task was given remains."""
        connection, self.connection, self._followed = self.connection, None, None
        self._begin()
        return [] if connection is None else [io.Disconnect(connection)]

    def _connect(self, followed: Follow) -> io.Connect:
        hello = io.Hello(self._job, self._channel, followed.attempt, followed.attempt, 0)
        return io.Connect(self.input, followed.address, hello)

    def _is_followed(self, hello: io.Hello) -> bool:
        return self._followed is not None and hello.sender == self._followed.attempt

    def connected(self, event: io.Connected) -> list[io.Instruction]:
        if self.connection is not None or not self._is_followed(event.hello):
            return [io.Disconnect(event.connection)]
        self.connection = event.connection
        self._begin()
        return []

    def lost(self, event: io.Lost) -> list[io.Instruction]:
        """Subscribes again: the task may have lost only the connection."""
        if event.connection >= 0:
            concerned = event.connection == self.connection
        else:
            concerned = event.input == self.input and event.hello is not None and self._is_followed(event.hello)
        if not concerned or self._followed is None:
            return []
        self.connection = None
        return [self._connect(self._followed)]

    # ---- parts

    def received(self, event: io.FeedReceived) -> RestoreState | None:
        """Takes a part. Returns the state to load, if it is a point. Raises CodecError or ProtocolError if the part is
        not valid."""
        header = event.header
        if header.seq != self._received:
            raise ProtocolError(f"part {header.seq} of a feed has arrived, {self._received} is next")
        self._received += 1
        for mark in header.marks:
            self._store.mark(mark)
        for segment in header.delta:
            self._store.append(segment)
        match header.kind:
            case FrameKind.FEED_CHUNK:
                if not isinstance(event.body, pa.RecordBatch):
                    raise CodecError("a chunk of a feed has no rows")
                self._chunks[decode_part(header.meta, ChunkPart).number] = Chunk(event.body)
            case FrameKind.FEED_FRAME:
                part = decode_part(header.meta, FramePart)
                self._frames_of(part.output).append(_entry(part.record, part.checksum, event.body))
            case _:
                return self._point(header, decode_part(header.meta, PointPart))
        return None

    def acknowledge(self, loaded: int = 0) -> list[io.Instruction]:
        """Acknowledges parts, the last of a point only when it is loaded. ``loaded``: the point that was loaded now."""
        if loaded == self._loading:
            self._loading = 0
        below = self._loading - 1 if self._loading else self._received
        if self.connection is None or (not loaded and below % _ACKNOWLEDGED_AT_ONCE):
            return []
        return [io.SendAck(self.connection, io.Acknowledgement(below, [], 0, 0, 0, io.SnapshotPosition(0, 0)))]

    def _frames_of(self, output: int) -> list[RetainedFrame]:
        if not 0 <= output < self._outputs:
            raise CodecError(f"a feed names output {output} of {self._outputs}")
        return self._frames[output]

    def _point(self, header: FrameHeader, part: PointPart) -> RestoreState:
        tables = {
            (name, table): self._rows(self._tables.get((name, table), []), rows.kept, rows.added)
            for name, operator in part.operators.items()
            for table, rows in operator.tables.items()
        }
        self._tables = tables
        used = {id(chunk) for chunks in tables.values() for chunk in chunks}
        self._chunks = {number: chunk for number, chunk in self._chunks.items() if id(chunk) in used}
        operators = {
            name: OperatorState(
                {table: tables[name, table] for table in operator.tables}, msgspec.msgpack.decode(operator.values)
            )
            for name, operator in part.operators.items()
        }
        frames = [
            self._retained(output, first, part.progress.outputs[output]) for output, first in enumerate(part.first)
        ]
        self._loading = self._received
        stable = self._store.stable(self._log)
        self._record = [segment for segment in (*self._record, *part.record) if segment.epoch >= stable]
        self.point = FeedState(part.position, part.progress, operators, frames, part.committables, self._record)
        parts = {name: [state] for name, state in operators.items()}
        return RestoreState(
            part.position.epoch, parts, part.progress, ahead=True, feed_point=self._received, aborted=part.aborted
        )

    def _rows(self, last: list[Chunk], kept: int, added: list[int]) -> list[Chunk]:
        if kept > len(last) or any(number not in self._chunks for number in added):
            raise ProtocolError("a feed point names chunks that were not sent")
        return [*last[:kept], *(self._chunks[number] for number in added)]

    def _retained(self, output: int, first: int, next_seq: int) -> list[RetainedFrame]:
        """The frames [first, next_seq) of an output. Earlier ones are covered."""
        frames = self._frames_of(output)
        kept = self._frames[output] = [entry for entry in frames if entry.frame.seq >= first]
        retained = [entry for entry in kept if entry.frame.seq < next_seq]
        if [entry.frame.seq for entry in retained] != list(range(min(first, next_seq), next_seq)):
            raise ProtocolError(f"a feed point lacks frames of output {output}: it needs those from {first} on")
        return retained

    # ---- use

    def usable(self, attempt: Attempt, checkpoint: int) -> FeedState | None:
        """The state from which the process can start as ``attempt``, if the last completed checkpoint of the task is
        this one."""
        point = self.point
        if point is None or point.position.epoch < checkpoint:
            return None
        return point if self.precedes(attempt) else None

    def precedes(self, attempt: Attempt) -> bool:
        """Whether what was received is of the attempt before this one."""
        before = self._attempt
        return before is not None and attempt == Attempt(before.generation, before.counter + 1)

    @property
    def size_bytes(self) -> int:
        """The frames and chunks held."""
        frames = sum(entry.size_bytes for entries in self._frames for entry in entries)
        return frames + sum(chunk.rows.nbytes for chunks in self._tables.values() for chunk in chunks)


def _entry(record: FrameRecord, checksum: int, body: Any) -> RetainedFrame:
    try:
        frame = frame_of(record)
    except ValueError as problem:
        raise CodecError(f"a feed names frames of kind {record.kind}") from problem
    return RetainedFrame(frame, record.rows, body, record.size_bytes, checksum)
