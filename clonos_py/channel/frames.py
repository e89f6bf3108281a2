"""Frames, the unit of transport in channels, and the codec between a frame's rows and its body."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Protocol

import msgspec
import pyarrow as pa

from clonos_py.columns import compact
from clonos_py.model.ids import LogId
from clonos_py.model.segments import LogSegment, StableMark
from clonos_py.model.times import MIN_TIME


class FrameKind(IntEnum):
    """DATA may have no rows, only a watermark. Two kinds have no sequence number, since they carry only logs (D6).
    LOG_ONLY opens every connection. LOGS_ARRIVED says that the sender now has logs that it lacked when it sent its last
    frame, and that it may not have a next frame for long.

    LAST_BARRIER is a BARRIER with which the job ends, unless its checkpoint is aborted.

    The last three are no frames of a channel: they carry the parts of a standby's feed (E17).
    """

    DATA = 0
    BARRIER = 1
    END = 2
    LOG_ONLY = 3
    LOGS_ARRIVED = 4
    LAST_BARRIER = 5
    FEED_CHUNK = 6
    FEED_FRAME = 7
    FEED_POINT = 8

    @property
    def numbered(self) -> bool:
        return self not in (FrameKind.LOG_ONLY, FrameKind.LOGS_ARRIVED) and not self.of_feed

    @property
    def of_feed(self) -> bool:
        return self >= FrameKind.FEED_CHUNK


@dataclass(frozen=True, slots=True)
class Frame:
    """The unit of transport, order and logging in a channel (D2). ``epoch``: the last checkpoint that its sender had
    taken.

    ``watermark`` and ``idle`` hold after its rows. ``checkpoint`` is that of a BARRIER. ``marker_us`` measures latency
    (0: no marker); it is no part of the computation and may differ when the frame is rebuilt.
    """

    seq: int
    kind: FrameKind
    epoch: int
    watermark: int = MIN_TIME
    idle: bool = False
    checkpoint: int = 0
    rows: pa.RecordBatch | None = None
    marker_us: int = 0
    stamp: bytes = b""
    """Data that the checkpoint protocol of the sender passes to that of the receiver."""


class FrameHeader(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The header before a body on the wire. ``marks``: marks that are new since the connection last carried some."""

    seq: int
    kind: FrameKind
    epoch: int
    watermark: int
    idle: bool
    checkpoint: int
    rows: int
    marker_us: int
    checksum: int
    marks: tuple[StableMark, ...]
    delta: list[LogSegment]
    sent_before: int = 0
    """Of LOG_ONLY: frames below this number were sent before, to the receiver or its predecessor."""
    incomplete: tuple[LogId, ...] = ()
    """Logs of which the sender may not yet hold all that its predecessor held."""
    meta: bytes = b""
    """Of a frame: its stamp, as the connection carries it. Of a part of a feed: what the part is."""

    def frame(self, rows: pa.RecordBatch | None) -> Frame:
        """The frame with this header and with ``rows``."""
        return Frame(
            self.seq,
            self.kind,
            self.epoch,
            self.watermark,
            self.idle,
            self.checkpoint,
            rows,
            self.marker_us,
            self.meta,
        )


class FrameCodec(Protocol):
    """Converts between rows and the bodies that the in-flight log retains. Within one process both are the same."""

    def encode(self, rows: pa.RecordBatch) -> Any: ...

    def pack(self, rows: pa.RecordBatch) -> Any:
        """As ``encode``, for a receiver that does not know the schema."""
        ...

    def message(self, body: Any) -> pa.Buffer:
        """The body as checkpoint storage holds it: one Arrow message."""
        ...

    def body(self, message: pa.Buffer, schema: pa.Schema) -> Any:
        """The body that ``message`` was made from. Raises ArrowException if it is found not to have ``schema``."""
        ...

    def size_bytes(self, body: Any) -> int: ...

    def checksum(self, body: Any, sampled: bool) -> int:
        """A checksum that is equal for equal rows cut the same way, to compare a rebuilt frame with its original (D12).
        ``sampled``: parts of a large body may be enough."""
        ...


class PassThrough:
    """The codec of drivers that keep all tasks in one process: batches are passed on unchanged."""

    def encode(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        return rows

    def pack(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        return rows

    def message(self, body: pa.RecordBatch) -> pa.Buffer:
        return body.serialize()

    def body(self, message: pa.Buffer, schema: pa.Schema) -> pa.RecordBatch:
        return pa.ipc.read_record_batch(message, schema)

    def size_bytes(self, body: pa.RecordBatch) -> int:
        return int(body.nbytes)

    def checksum(self, body: pa.RecordBatch, sampled: bool) -> int:
        return compact.sampled_checksum(body) if sampled else compact.checksum(body)
