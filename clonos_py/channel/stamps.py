"""The stamp that a checkpoint protocol may put on frames (E10), stored with the frame and small on the wire.

A frame gets its stamp when it is cut and keeps it: if it is sent again, the stamp is the same. The in-flight log holds
stamps in full form. On a connection a stamp is encoded as the difference to the one before it there, so a connection
begins with a full one (``link/stamps.py``).

The full form is the number of tasks, the clock, two bit vectors with eight bits to a byte, and a count for each task.
Numbers are in base 128, lowest digit first, without superfluous zeros. A difference is empty if nothing differs. Else
it begins with a byte of flags for what follows: the growth of the clock, the changed bits and the grown counts. Each of
the latter is a list if few have changed, else a vector. Within one channel no number becomes smaller; if one does, the
full form follows instead.

Reading any bytes returns the stamp that was written, or raises CodecError.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from clonos_py.model.errors import CodecError

_WHOLE, _CLOCK, _GREATER, _GREATER_LISTED, _TAKEN, _TAKEN_LISTED, _GROWN_LISTED, _GROWN = (1 << bit for bit in range(8))
_NUMBER_MAX = 1 << 63


@dataclass(frozen=True, slots=True)
class HmnrStamp:
    """The state of a frame's sender when the frame was cut (``protocols/induced/hmnr.py``). Bit k of ``greater`` and
    of ``taken`` belongs to task k."""

    clock: int
    greater: int
    taken: int
    checkpoints: tuple[int, ...]

    def encode(self) -> bytes:
        """The full form."""
        tasks = len(self.checkpoints)
        out = bytearray()
        _put(out, tasks)
        _put(out, self.clock)
        out += packed(self.greater, tasks) + packed(self.taken, tasks)
        for count in self.checkpoints:
            _put(out, count)
        return bytes(out)

    @staticmethod
    def decode(data: bytes, tasks: int) -> HmnrStamp:
        """Decodes a full form for this number of tasks. Raises CodecError."""
        try:
            return _whole(_Reader(data), tasks)
        except ValueError as problem:
            raise CodecError(f"{len(data)} bytes are no stamp: {problem}") from problem


class StampWriter:
    """Encodes the stamps of one connection, in the order of its frames."""

    def __init__(self) -> None:
        self._before: HmnrStamp | None = None

    def write(self, stamp: HmnrStamp) -> bytes:
        """The wire form of the stamp."""
        before, self._before = self._before, stamp
        if stamp == before:
            return b""
        if before is None or not _follows(stamp, before):
            return bytes([_WHOLE]) + stamp.encode()
        return _difference(stamp, before)


class StampReader:
    """Decodes the stamps of one connection. ``tasks``: the number of tasks of the job."""

    def __init__(self, tasks: int) -> None:
        self._tasks = tasks
        self._before: HmnrStamp | None = None

    def read(self, data: bytes) -> HmnrStamp:
        """The stamp that was written. Raises CodecError; the reader is then unchanged."""
        try:
            self._before = self._read(data)
        except ValueError as problem:
            raise CodecError(f"{len(data)} bytes are no stamp: {problem}") from problem
        return self._before

    def _read(self, data: bytes) -> HmnrStamp:
        if data[:1] == bytes([_WHOLE]):
            return _whole(_Reader(data, 1), self._tasks)
        if self._before is None:
            raise ValueError("a difference without a stamp before it")
        if not data:
            return self._before
        return _after(self._before, _Reader(data))


def _follows(stamp: HmnrStamp, before: HmnrStamp) -> bool:
    """Whether the stamp can be encoded as a difference: no number has become smaller."""
    return (
        stamp.clock >= before.clock
        and len(stamp.checkpoints) == len(before.checkpoints)
        and all(map(int.__ge__, stamp.checkpoints, before.checkpoints))
    )


def _difference(stamp: HmnrStamp, before: HmnrStamp) -> bytes:
    tasks = len(stamp.checkpoints)
    out = bytearray(1)
    if stamp.clock > before.clock:
        out[0] |= _CLOCK
        _put(out, stamp.clock - before.clock)
    for changed, flag, listed in (
        (stamp.greater ^ before.greater, _GREATER, _GREATER_LISTED),
        (stamp.taken ^ before.taken, _TAKEN, _TAKEN_LISTED),
    ):
        if changed.bit_count() >= (tasks + 7) // 8:
            out[0] |= flag
            out += packed(changed, tasks)
        elif changed:
            out[0] |= listed
            _put_places(out, changed)
    if stamp.checkpoints != before.checkpoints:
        growth = [new - old for new, old in zip(stamp.checkpoints, before.checkpoints, strict=True)]
        vector_bytes = (sum(growth) + tasks + 7) // 8
        if vector_bytes > tasks - growth.count(0):
            out[0] |= _GROWN_LISTED
            _put_growth_listed(out, growth)
        else:
            out[0] |= _GROWN
            _put_growth(out, growth)
    return bytes(out)


def _after(before: HmnrStamp, reader: _Reader) -> HmnrStamp:
    """The stamp after ``before`` that the difference describes."""
    tasks, flags = len(before.checkpoints), reader.byte()
    if not flags or flags & _WHOLE:
        raise ValueError(f"flags {flags} describe no difference")
    clock, greater, taken, checkpoints = before.clock, before.greater, before.taken, before.checkpoints
    if flags & _CLOCK:
        clock += reader.number(least=1)
    if flags & _GREATER:
        greater ^= reader.bits(tasks)
    if flags & _GREATER_LISTED:
        greater ^= reader.places(tasks)
    if flags & _TAKEN:
        taken ^= reader.bits(tasks)
    if flags & _TAKEN_LISTED:
        taken ^= reader.places(tasks)
    if flags & _GROWN_LISTED:
        checkpoints = reader.grown_listed(checkpoints)
    if flags & _GROWN:
        checkpoints = reader.grown(checkpoints)
    reader.end()
    return HmnrStamp(clock, greater, taken, checkpoints)


def _whole(reader: _Reader, tasks: int) -> HmnrStamp:
    if (found := reader.number()) != tasks:
        raise ValueError(f"it is of {found} tasks where there are {tasks}")
    clock, greater, taken = reader.number(), reader.bits(tasks), reader.bits(tasks)
    stamp = HmnrStamp(clock, greater, taken, tuple(reader.number() for _ in range(tasks)))
    reader.end()
    return stamp


def _put(out: bytearray, number: int) -> None:
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


def _put_places(out: bytearray, bits: int) -> None:
    """Writes which bits are set: their number, then for each the number of unset bits before it."""
    _put(out, bits.bit_count())
    for gap in _gaps(bits):
        _put(out, gap)


def _gaps(bits: int) -> Iterator[int]:
    while bits:
        gap = (bits & -bits).bit_length() - 1
        yield gap
        bits >>= gap + 1


def _put_growth_listed(out: bytearray, growth: Sequence[int]) -> None:
    """Writes the number of counts that have grown. Then, for each: the number of unchanged counts since the one before,
    doubled, plus one if it has grown by more than one; if so, also the growth minus two."""
    grown = [(task, by) for task, by in enumerate(growth) if by]
    _put(out, len(grown))
    place = 0
    for task, by in grown:
        _put(out, (task - place) << 1 | (by > 1))
        if by > 1:
            _put(out, by - 2)
        place = task + 1


def _put_growth(out: bytearray, growth: Sequence[int]) -> None:
    """Writes each growth in unary: as many set bits, then an unset one. Nothing may follow."""
    bits = "".join("1" * by + "0" for by in growth)
    out += int(bits[::-1], 2).to_bytes((len(bits) + 7) // 8, "little")


class _Reader:
    """Reads one stamp's bytes. All methods raise ValueError."""

    def __init__(self, data: bytes, position: int = 0) -> None:
        self._data, self._position = data, position

    def byte(self) -> int:
        if self._position >= len(self._data):
            raise ValueError("too few bytes")
        self._position += 1
        return self._data[self._position - 1]

    def number(self, least: int = 0) -> int:
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
            if value >= _NUMBER_MAX or shift > 63:
                raise ValueError("a number is too large")
        if value < least or value >= _NUMBER_MAX or (not byte and shift > 7):
            raise ValueError(f"{value} is out of range, or not in its shortest encoding")
        return value

    def bits(self, tasks: int) -> int:
        size = (tasks + 7) // 8
        data = self._data[self._position : self._position + size]
        self._position += size
        return unpacked(data, tasks)

    def places(self, tasks: int) -> int:
        bits, place = 0, -1
        for _ in range(self.number(least=1)):
            place += self.number() + 1
            if place >= tasks:
                raise ValueError(f"task {place} of {tasks}")
            bits |= 1 << place
        return bits

    def grown_listed(self, counts: tuple[int, ...]) -> tuple[int, ...]:
        after, task = list(counts), -1
        for _ in range(self.number(least=1)):
            gap, more = divmod(self.number(), 2)
            task += gap + 1
            if task >= len(after):
                raise ValueError(f"task {task} of {len(after)}")
            after[task] += self.number() + 2 if more else 1
        return tuple(after)

    def grown(self, counts: tuple[int, ...]) -> tuple[int, ...]:
        data, self._position = self._data[self._position :], len(self._data)
        bits = format(int.from_bytes(data, "little"), f"0{8 * len(data) or 1}b")[::-1]
        *growth, rest = bits.split("0", len(counts))
        if len(growth) < len(counts) or rest.strip("0") or len(rest) > 7:
            raise ValueError(f"{len(data)} bytes do not encode the growth of {len(counts)} counts")
        return tuple(count + len(by) for count, by in zip(counts, growth, strict=True))

    def end(self) -> None:
        if self._position != len(self._data):
            raise ValueError("trailing bytes")


def packed(bits: int, tasks: int) -> bytes:
    """A bit vector with eight bits to a byte."""
    return bits.to_bytes((tasks + 7) // 8, "little")


def unpacked(data: bytes, tasks: int) -> int:
    """The vector that was packed. Raises ValueError if the bytes are no vector of this many tasks."""
    bits = int.from_bytes(data, "little")
    if len(data) != (tasks + 7) // 8 or bits >> tasks:
        raise ValueError(f"{len(data)} bytes are no vector of {tasks} tasks")
    return bits
