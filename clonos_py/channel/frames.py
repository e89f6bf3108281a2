"""Frames: what travels in channels, and the codec between a frame's rows and its body."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Protocol

import msgspec
import pyarrow as pa

from clonos_py.columns import compact
from clonos_py.model.segments import LogSegment, StableMark
from clonos_py.model.times import MIN_TIME


class FrameKind(IntEnum):
    """DATA may have no rows (a watermark alone). LOG_ONLY is not sequenced: it opens every connection (D6)."""

    DATA = 0
    BARRIER = 1
    END = 2
    LOG_ONLY = 3


@dataclass(frozen=True, slots=True)
class Frame:
    """An atom of a channel (D2). ``epoch``: the checkpoint its sender had taken last when it was cut.

    ``watermark`` and ``idle`` hold after its rows. ``checkpoint`` is what a BARRIER is of. ``marker_us`` measures
    latency (0: no marker); it is no part of the computation and may differ when the frame is rebuilt.
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
    """What the checkpoint protocol of the sender says to that of the receiver."""


class FrameHeader(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What precedes a body on the wire. ``marks``: what has become stable since the connection last carried some."""

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
    """Of LOG_ONLY: frames below this number were sent to the receiver or its predecessor already."""
    lacking: tuple[int, ...] = ()
    """Numbers of tasks of whose logs the sender may not yet have all that its predecessor had."""
    stamp: bytes = b""

    def frame(self, rows: pa.RecordBatch | None) -> Frame:
        """The frame that travels with this header, of which ``rows`` is the content."""
        return Frame(
            self.seq,
            self.kind,
            self.epoch,
            self.watermark,
            self.idle,
            self.checkpoint,
            rows,
            self.marker_us,
            self.stamp,
        )


class FrameCodec(Protocol):
    """Between rows and what the in-flight log retains of them. Where nothing crosses a process, they are the same."""

    def encode(self, rows: pa.RecordBatch) -> Any: ...

    def message(self, body: Any) -> pa.Buffer:
        """The body as checkpoint storage keeps it: one Arrow message."""
        ...

    def body(self, message: pa.Buffer, schema: pa.Schema) -> Any:
        """What ``message`` was made of. Raises ArrowException where that is seen to be no batch of ``schema``."""
        ...

    def size_bytes(self, body: Any) -> int: ...

    def checksum(self, body: Any, sampled: bool) -> int:
        """The same for equal rows cut the same way, so that a rebuilt frame can be compared (D12). ``sampled``: parts
        of a large body may do."""
        ...


class PassThrough:
    """The codec of drivers that keep all tasks in one process: batches are handed over as they are."""

    def encode(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        return rows

    def message(self, body: pa.RecordBatch) -> pa.Buffer:
        return body.serialize()

    def body(self, message: pa.Buffer, schema: pa.Schema) -> pa.RecordBatch:
        return pa.ipc.read_record_batch(message, schema)

    def size_bytes(self, body: pa.RecordBatch) -> int:
        return int(body.nbytes)

    def checksum(self, body: pa.RecordBatch, sampled: bool) -> int:
        return compact.checksum(body)
