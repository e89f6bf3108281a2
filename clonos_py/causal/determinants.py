"""Determinants: what must be known to answer a nondeterministic question the same way again (Clonos, section 4.1).

Each kind is one struct. How a log of them lies on the wire is the business of ``codec``.
"""

from __future__ import annotations

from typing import Any

import msgspec

from clonos_py.model.errors import CodecError


class InputOrder(msgspec.Struct, frozen=True, array_like=True, tag=0, gc=False):
    """The next ``count`` events were frames of input channel ``channel``, in their order there."""

    channel: int
    count: int


class Time(msgspec.Struct, frozen=True, array_like=True, tag=1, gc=False):
    """The clock was asked and said ``now_us``, after ``cached`` questions that the time before this had answered."""

    now_us: int
    cached: int = 0


class Seed(msgspec.Struct, frozen=True, array_like=True, tag=2, gc=False):
    """The random generator of this epoch was seeded with ``seed``."""

    seed: int


class TimerFired(msgspec.Struct, frozen=True, array_like=True, tag=3, gc=False):
    """The processing-time timer of operator number ``operator`` for ``at_us`` fired here."""

    operator: int
    at_us: int


class Linger(msgspec.Struct, frozen=True, array_like=True, tag=4, gc=False):
    """The linger time ended: pending output was cut into frames here."""


class Trigger(msgspec.Struct, frozen=True, array_like=True, tag=5, gc=False):
    """The snapshot of checkpoint ``checkpoint`` was taken here: by a control call, or ``forced`` by frames (E10)."""

    checkpoint: int
    forced: bool = False


class Abort(msgspec.Struct, frozen=True, array_like=True, tag=6, gc=False):
    """The control call that aborts checkpoint ``checkpoint`` was taken here."""

    checkpoint: int


class SourceRead(msgspec.Struct, frozen=True, array_like=True, tag=7, gc=False):
    """The source gave the offsets [start, stop) of ``partition``, with this checksum of the content."""

    partition: int
    start: int
    stop: int
    checksum: int


class SourceEnd(msgspec.Struct, frozen=True, array_like=True, tag=8, gc=False):
    """The source said that it is exhausted."""


class SourceIdle(msgspec.Struct, frozen=True, array_like=True, tag=9, gc=False):
    """``partition`` had nothing for its idle time and stopped to hold the watermark back."""

    partition: int


class Answer(msgspec.Struct, frozen=True, array_like=True, tag=10, gc=False):
    """A service of ``kind`` answered ``value``, plain data; or it was kept aside under the name ``kept``."""

    kind: str
    value: Any
    kept: str | None = None


class Refusal(msgspec.Struct, frozen=True, array_like=True, tag=11, gc=False):
    """A service of ``kind`` raised ServiceError with this message."""

    kind: str
    message: str


class Completion(msgspec.Struct, frozen=True, array_like=True, tag=12, gc=False):
    """The asynchronous call number ``call`` of operator ``operator`` completed here, with ``value`` or ``error``; or
    the value was kept aside under the name ``kept``."""

    operator: int
    call: int
    value: Any
    error: str | None = None
    kept: str | None = None


class FrameBatch(msgspec.Struct, frozen=True, array_like=True, tag=13, gc=False):
    """The next event was the next ``count`` frames of input channel ``channel``, their rows taken as one batch."""

    channel: int
    count: int


class ReadBatch(msgspec.Struct, frozen=True, array_like=True, tag=15, gc=False):
    """The next ``count`` determinants, all of them SourceRead, were one event: their rows entered as one batch."""

    count: int


class FrameRows(msgspec.Struct, frozen=True, array_like=True, tag=16, gc=False):
    """From here on frames of output channel ``output`` have at most ``rows`` rows."""

    output: int
    rows: int


class Landmark(msgspec.Struct, frozen=True, array_like=True, tag=14, gc=False):
    """Pending output was cut here, and ``state`` is the whole progress of the task: a process that has it can go on
    here.

    Only tasks without state of their own have landmarks. ``epoch`` and ``epoch_start`` are those of the log here."""

    epoch: int
    epoch_start: int
    state: bytes


class LoopEnd(msgspec.Struct, frozen=True, array_like=True, tag=17, gc=False):
    """The control call was taken here that ends the loop of which the task is a head: no rows are left in it."""


class PartitionsDiscovered(msgspec.Struct, frozen=True, array_like=True, tag=18, gc=False):
    """The source reads these partitions from here on, too, each from its offset on. There may be none, once: then the
    task holds no event time back."""

    starts: dict[int, int]


Determinant = (
    InputOrder
    | Time
    | Seed
    | TimerFired
    | Linger
    | Trigger
    | Abort
    | SourceRead
    | SourceEnd
    | SourceIdle
    | Answer
    | Refusal
    | Completion
    | FrameBatch
    | ReadBatch
    | FrameRows
    | Landmark
    | LoopEnd
    | PartitionsDiscovered
)


def length(determinant: Determinant) -> int:
    """How many log offsets a determinant covers: a run of arrivals as many as it has, everything else one."""
    return determinant.count if isinstance(determinant, InputOrder) else 1


def encode_value(value: Any) -> bytes:
    """An answer alone. Raises CodecError when it holds something that is not plain data."""
    try:
        return msgspec.msgpack.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as problem:
        raise CodecError(f"an answer cannot be encoded: {problem}; service answers must be plain data") from problem


def decode_value(data: bytes) -> Any:
    """What ``encode_value`` was given. Raises CodecError."""
    try:
        return msgspec.msgpack.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as problem:
        raise CodecError(f"{len(data)} bytes are no answer: {problem}") from problem
