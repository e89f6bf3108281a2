"""Determinants: logged nondeterministic choices and answers, so that a replay repeats them (Clonos, section 4.1).

Each kind is one struct. Their encoding on the wire is in ``codec``.
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
    """A query of the clock returned ``now_us``, after ``cached`` queries that were answered with the time before it."""

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
    """The snapshot of checkpoint ``checkpoint`` was taken here: by a control request, or ``forced`` by frames (E10)."""

    checkpoint: int
    forced: bool = False


class Abort(msgspec.Struct, frozen=True, array_like=True, tag=6, gc=False):
    """The control request that aborts checkpoint ``checkpoint`` was processed here."""

    checkpoint: int


class SourceRead(msgspec.Struct, frozen=True, array_like=True, tag=7, gc=False):
    """The source returned the offsets [start, stop) of ``partition``, whose content has this checksum. ``last``: see
    ``Read``. A later run, whose source has more rows, repeats that the partition had ended."""

    partition: int
    start: int
    stop: int
    checksum: int
    last: bool = False


class SourceEnd(msgspec.Struct, frozen=True, array_like=True, tag=8, gc=False):
    """The source reported that it is exhausted."""


class SourceIdle(msgspec.Struct, frozen=True, array_like=True, tag=9, gc=False):
    """``partition`` returned nothing for its idle time and stopped holding the watermark back."""

    partition: int


class Answer(msgspec.Struct, frozen=True, array_like=True, tag=10, gc=False):
    """A service of ``kind`` answered ``value``, which is plain data; or the value is stored aside as ``kept``."""

    kind: str
    value: Any
    kept: str | None = None


class Refusal(msgspec.Struct, frozen=True, array_like=True, tag=11, gc=False):
    """A service of ``kind`` raised ServiceError with this message."""

    kind: str
    message: str


class Completion(msgspec.Struct, frozen=True, array_like=True, tag=12, gc=False):
    """The asynchronous call number ``call`` of operator ``operator`` completed here, with ``value`` or ``error``; or
    the value is stored aside as ``kept``."""

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
    """Pending output was cut here, and ``state`` is the whole progress of the task: a process with it can start here.

    Only tasks without state of their own have landmarks. ``epoch`` and ``epoch_start`` are those of the log here."""

    epoch: int
    epoch_start: int
    state: bytes


class LoopEnd(msgspec.Struct, frozen=True, array_like=True, tag=17, gc=False):
    """The control request that ends the loop of which the task is a head was processed here: the loop holds no rows."""


class PartitionsDiscovered(msgspec.Struct, frozen=True, array_like=True, tag=18, gc=False):
    """From here on the source also reads these partitions, each from its offset on. One such determinant may have no
    partitions: from then on the task holds no event time back."""

    starts: dict[int, int]


class Fed(msgspec.Struct, frozen=True, array_like=True, tag=19, gc=False):
    """A feed point: pending output was cut here, and the next query of the time or of a random number gets a new
    answer, so that a standby with the state of this point can continue from here (E17)."""


class SourceReopened(msgspec.Struct, frozen=True, array_like=True, tag=20, gc=False):
    """From here on the run named ``run`` reads the source: partitions that had ended in an earlier run, or were idle,
    may give more rows, and hold the watermark back until they end or are idle again."""

    run: str


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
    | Fed
    | SourceReopened
)


def length(determinant: Determinant) -> int:
    """The number of log offsets that a determinant covers: of a run of arrivals its length, else one."""
    return determinant.count if isinstance(determinant, InputOrder) else 1


def encode_value(value: Any) -> bytes:
    """Encodes a single answer. Raises CodecError if it holds something that is not plain data."""
    try:
        return msgspec.msgpack.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as problem:
        raise CodecError(f"an answer cannot be encoded: {problem}; service answers must be plain data") from problem


def decode_value(data: bytes) -> Any:
    """Decodes a single answer. Raises CodecError."""
    try:
        return msgspec.msgpack.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as problem:
        raise CodecError(f"{len(data)} bytes are no answer: {problem}") from problem
