"""The wire form of a log: a sequence of segments, each encoded relative to those before it, from the last that is
self-contained. The first of an epoch is, and so is the first after each place at which a replay may begin.

A segment is one flat msgpack array of numbered codes, each followed by its fields. An arrival is a single small number.
Arrivals that repeat in a pattern, as when channels are taken in turn, are encoded as a copy of earlier ones at a
distance (Lempel and Ziv, 1977). Times and timers are differences, a read continues where the last one of its partition
stopped, and the kind of a service is spelled out once. Determinants without a code of their own are written in full.

Decoding any bytes returns determinants or raises CodecError. A codec that has decoded a log continues its encoding
where the log ends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import msgspec

from clonos_py.causal.determinants import (
    Answer,
    Determinant,
    FrameBatch,
    InputOrder,
    Linger,
    ReadBatch,
    SourceRead,
    Time,
    TimerFired,
)
from clonos_py.model.errors import CodecError
from clonos_py.model.segments import LogSegment

_COPY, _TIME, _TIMER, _LINGER, _READ, _ANSWER, _MERGED, _OTHER, _CACHED, _TOGETHER = range(10)
_ORDER = 10
"""Codes from here on are arrivals. One arrival of channel c is 10 + 2c; 11 + 2c is followed by a count of arrivals."""
_COPY_AT_LEAST = 4
_COPIED_MAX = 1 << 16
"""The most determinants that the copies of one segment may expand to."""
_DIFFERENCE_MAX = 1 << 62
_KINDS_MAX = 64

_ARRIVALS = (InputOrder, FrameBatch)

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[list[Any]] = msgspec.msgpack.Decoder(list[Any])


class LogCodec:
    """Encodes or decodes the segments of one log, in order. ``epoch``: the epoch that its state belongs to."""

    def __init__(self, epoch: int = 0) -> None:
        self.restart(epoch)

    def restart(self, epoch: int) -> None:
        """Resets the state, so that the next segment, of this epoch, can be decoded without earlier ones."""
        self.epoch = epoch
        self.fresh = True
        """Whether the next segment is self-contained."""
        self._time_us = 0
        self._timer_us = 0
        self._stops: dict[int, int] = {}
        self._kinds: list[str] = []

    # ---- encoding

    def encode(self, determinants: Sequence[Determinant]) -> bytes:
        """The next segment's payload. Raises CodecError if an answer holds something that is not plain data."""
        self.fresh = False
        flat: list[Any] = []
        copies = _Copies(determinants)
        writers, position = self._WRITERS, 0
        while position < len(determinants):
            determinant = determinants[position]
            if isinstance(determinant, _ARRIVALS) and (length := copies.length(position)):
                flat += (_COPY, copies.distance, length)
                position += length
                continue
            write = writers.get(type(determinant))
            if write is None or not write(self, determinant, flat):
                flat += (_OTHER, determinant)
                self._update_state(determinant)
            position += 1
        try:
            return _encoder.encode(flat)
        except (TypeError, ValueError, OverflowError, RecursionError) as problem:
            raise CodecError(
                f"a determinant cannot be encoded: {problem}; service answers must be plain data"
            ) from problem

    def _write_order(self, order: InputOrder, flat: list[Any]) -> bool:
        if order.count == 1:
            flat.append(_ORDER + 2 * order.channel)
        else:
            flat += (_ORDER + 2 * order.channel + 1, order.count)
        return True

    def _write_merged(self, batch: FrameBatch, flat: list[Any]) -> bool:
        flat += (_MERGED, batch.channel, batch.count)
        return True

    def _write_together(self, batch: ReadBatch, flat: list[Any]) -> bool:
        flat += (_TOGETHER, batch.count)
        return True

    def _write_linger(self, linger: Linger, flat: list[Any]) -> bool:
        flat.append(_LINGER)
        return True

    def _write_time(self, time: Time, flat: list[Any]) -> bool:
        since_us = time.now_us - self._time_us
        if abs(since_us) >= _DIFFERENCE_MAX:
            return False
        flat += (_CACHED, since_us, time.cached) if time.cached else (_TIME, since_us)
        self._time_us = time.now_us
        return True

    def _write_timer(self, fired: TimerFired, flat: list[Any]) -> bool:
        since_us = fired.at_us - self._timer_us
        if abs(since_us) >= _DIFFERENCE_MAX:
            return False
        flat += (_TIMER, fired.operator, since_us)
        self._timer_us = fired.at_us
        return True

    def _write_read(self, read: SourceRead, flat: list[Any]) -> bool:
        partition, start, stop = read.partition, read.start, read.stop
        if read.last or not start == self._stops.get(partition, 0) <= stop < _DIFFERENCE_MAX:
            return False
        flat += (_READ, partition, stop - start, read.checksum)
        self._stops[partition] = stop
        return True

    def _write_answer(self, answer: Answer, flat: list[Any]) -> bool:
        if answer.kept is not None:
            return False
        flat += (_ANSWER, self._coded(answer.kind), answer.value)
        return True

    _WRITERS: ClassVar[dict[type, Callable[[LogCodec, Any, list[Any]], bool]]] = {
        InputOrder: _write_order,
        FrameBatch: _write_merged,
        ReadBatch: _write_together,
        Linger: _write_linger,
        Time: _write_time,
        TimerFired: _write_timer,
        SourceRead: _write_read,
        Answer: _write_answer,
    }
    """By kind of determinants with a code of their own. They return False if this one has to be written in full."""

    def _coded(self, kind: str) -> int | str:
        if kind in self._kinds:
            return self._kinds.index(kind)
        self._add_kind(kind)
        return kind

    def _add_kind(self, kind: str) -> None:
        if len(self._kinds) < _KINDS_MAX:
            self._kinds.append(kind)

    def _update_state(self, determinant: Determinant) -> None:
        """Updates the state from a determinant written in full, since the next one is encoded relative to it."""
        match determinant:
            case SourceRead(partition=partition, stop=stop):
                self._stops[partition] = stop
            case Time(now_us=now_us):
                self._time_us = now_us
            case TimerFired(at_us=at_us):
                self._timer_us = at_us

    # ---- decoding

    def decode(self, data: bytes) -> list[Determinant]:
        """The determinants of the next payload. Raises CodecError on bytes that ``encode`` cannot have made here."""
        self.fresh = False
        try:
            flat = _decoder.decode(data)
            return self._read(iter(flat))
        except (msgspec.MsgspecError, ValueError, LookupError, StopIteration, RecursionError) as problem:
            raise CodecError(f"{len(data)} bytes are no determinants: {problem or type(problem).__name__}") from problem

    def load(self, segment: LogSegment) -> list[Determinant]:
        """The determinants of the log's next segment."""
        if segment.self_contained or segment.epoch != self.epoch:
            self.restart(segment.epoch)
        return self.decode(segment.payload)

    def _read(self, fields: Any) -> list[Determinant]:
        found: list[Determinant] = []
        copied = 0
        for code in fields:
            if _number(code) >= _ORDER:
                channel, repeated = divmod(code - _ORDER, 2)
                found.append(InputOrder(channel, _count(next(fields)) if repeated else 1))
            elif code == _COPY:
                copied += _copy(found, _number(next(fields)), _count(next(fields)), _COPIED_MAX - copied)
            else:
                found.append(self._READERS[code](self, fields))
        return found

    def _read_time(self, fields: Any) -> Determinant:
        self._time_us += _number(next(fields), -_DIFFERENCE_MAX)
        return Time(self._time_us)

    def _read_cached(self, fields: Any) -> Determinant:
        self._time_us += _number(next(fields), -_DIFFERENCE_MAX)
        return Time(self._time_us, _count(next(fields)))

    def _read_timer(self, fields: Any) -> Determinant:
        operator = _number(next(fields))
        self._timer_us += _number(next(fields), -_DIFFERENCE_MAX)
        return TimerFired(operator, self._timer_us)

    def _read_linger(self, fields: Any) -> Determinant:
        return Linger()

    def _read_read(self, fields: Any) -> Determinant:
        partition = _number(next(fields))
        start = self._stops.get(partition, 0)
        stop = self._stops[partition] = start + _number(next(fields))
        return SourceRead(partition, start, stop, _number(next(fields)))

    def _read_answer(self, fields: Any) -> Determinant:
        kind = next(fields)
        if isinstance(kind, str):
            self._add_kind(kind)
        else:
            kind = self._kinds[_number(kind)]
        return Answer(kind, next(fields))

    def _read_merged(self, fields: Any) -> Determinant:
        return FrameBatch(_number(next(fields)), _count(next(fields)))

    def _read_together(self, fields: Any) -> Determinant:
        return ReadBatch(_count(next(fields)))

    def _read_other(self, fields: Any) -> Determinant:
        determinant: Determinant = msgspec.convert(next(fields), Determinant)
        if isinstance(determinant, InputOrder | FrameBatch | ReadBatch):
            _count(determinant.count)
        self._update_state(determinant)
        return determinant

    _READERS: ClassVar[dict[int, Callable[[LogCodec, Any], Determinant]]] = {
        _TIME: _read_time,
        _TIMER: _read_timer,
        _LINGER: _read_linger,
        _READ: _read_read,
        _ANSWER: _read_answer,
        _MERGED: _read_merged,
        _OTHER: _read_other,
        _CACHED: _read_cached,
        _TOGETHER: _read_together,
    }


class _Copies:
    """Finds arrivals that repeat earlier ones in the same order."""

    def __init__(self, determinants: Sequence[Determinant]) -> None:
        self._all = determinants
        self._last: dict[Determinant, int] | None = {} if len(determinants) > _COPY_AT_LEAST else None
        self._left = _COPIED_MAX
        self.distance = 0

    def length(self, position: int) -> int:
        """How many arrivals, of which one is at ``position``, repeat those ``distance`` before; 0 if a copy is not
        worth it."""
        if self._last is None:
            return 0
        here = self._all[position]
        before = self._last.get(here, position)
        self._last[here] = position
        self.distance = position - before
        length = 0
        while self.distance and length < self._left and self._repeats(position + length):
            length += 1
        if length < _COPY_AT_LEAST:
            return 0
        self._left -= length
        return length

    def _repeats(self, position: int) -> bool:
        if position >= len(self._all):
            return False
        here = self._all[position]
        return isinstance(here, _ARRIVALS) and here == self._all[position - self.distance]


def _copy(found: list[Determinant], distance: int, length: int, most: int) -> int:
    if not 0 < distance <= len(found) or length > most:
        raise ValueError("a copy from before the first determinant, or of too many")
    for _ in range(length):
        determinant = found[-distance]
        if not isinstance(determinant, _ARRIVALS):
            raise ValueError("a copy of determinants that are not arrivals")
        found.append(determinant)
    return length


def _number(value: Any, least: int = 0) -> int:
    if type(value) is not int or value < least:
        raise ValueError(f"{value!r} where a number is expected")
    return value


def _count(value: Any) -> int:
    if _number(value) < 1:
        raise ValueError("a run that is shorter than one")
    return value  # type: ignore[no-any-return]


def encode(determinants: Sequence[Determinant]) -> bytes:
    """The wire form of a log's first segment."""
    return LogCodec().encode(determinants)


def decode(data: bytes) -> list[Determinant]:
    """The determinants of a log's first segment. Raises CodecError."""
    return LogCodec().decode(data)
