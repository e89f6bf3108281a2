"""A source of several partitions, read round-robin, so that their event times advance together.

A partition that stands for a named object, such as a file, tags its offsets with a hash of the name. If the list of
partitions has changed since the checkpoint so that a position would belong to another partition, resuming raises an
error instead of giving wrong results.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

import pyarrow as pa
import xxhash

from clonos_py.model.errors import SourceError
from clonos_py.model.operators import End, Read, Source, Wait

ACTIVE = 64
"""At most this many partitions are read in turn; the others wait, so that not all files are open at once."""

_TAG_SHIFT = 47
POSITIONS = 1 << _TAG_SHIFT
"""Positions of a partition are below this."""


class PartitionRead(NamedTuple):
    """The rows of one read of a partition, up to ``stop``; see ``Read``."""

    stop: int
    rows: pa.RecordBatch
    checksum: int
    last: bool
    letters: pa.RecordBatch | None = None
    """The rows of the second port, if there is one."""
    counts: Mapping[str, int] = {}
    """See ``Read``."""

    @property
    def events(self) -> int:
        """The number of records read, well-formed or malformed."""
        return self.rows.num_rows + sum(self.counts.values())

    def ports(self, count: int) -> tuple[pa.RecordBatch | None, ...]:
        return (self.rows if self.rows.num_rows else None, self.letters)[:count]


class Partition(Protocol):
    """A partition of a source. Positions are its own, from 0. It raises SourceErrors that name the cause."""

    name: str
    """The name of the object that it stands for; empty if it has none."""

    def next(self, start: int, rows_max: int | None) -> PartitionRead | None:
        """The read that begins at ``start``, with at most ``rows_max`` rows; None at the end."""
        ...

    def between(self, start: int, stop: int) -> PartitionRead:
        """The same read again. Raises SourceError if the rows are no longer there."""
        ...


class PartitionReader(Source):
    """The source of one task. ``make(p)`` returns partition p; it is called only for the task's own partitions.

    The last read of a partition is marked as such. If the end is noticed later, an empty read is marked.
    """

    def __init__(self, count: int, make: Callable[[int], Partition], ports: int = 1) -> None:
        """``ports``: 2 if partitions also give dead letters."""
        self._count, self._ports = count, ports
        self._make = make
        self._own: dict[int, Partition] = {}
        self._positions: dict[int, int] = {}
        self._turn: deque[int] = deque()
        self._rows_max: int | None = None

    def partitions(self) -> int:
        return self._count

    def begins(self, partition: int) -> int:
        return _tag(self._own[partition])

    def open(self, index: int, parallelism: int) -> None:
        self._own = {number: self._make(number) for number in range(index, self._count, parallelism)}
        self.seek({})

    def seek(self, positions: Mapping[int, int]) -> None:
        self._positions = {
            number: _position(partition, positions[number]) if number in positions else 0
            for number, partition in self._own.items()
        }
        self._turn = deque(self._own)

    def limit(self, rows: int) -> None:
        self._rows_max = rows

    def poll(self, now: int) -> Read | Wait | End:
        if not self._turn:
            return End()
        number = self._turn.popleft()
        self._turn.insert(ACTIVE - 1, number)
        start = self._positions[number]
        piece = self._own[number].next(start, self._rows_max)
        return self._read(number, start, piece) if piece else self._exhausted(number, start)

    def reread(self, partition: int, start: int, stop: int) -> Read:
        own = self._own[partition]
        first = _position(own, start)
        if start == stop:
            return self._exhausted(partition, first)
        if partition not in self._turn:
            self._turn.append(partition)
        return self._read(partition, first, own.between(first, _position(own, stop)))

    def _read(self, number: int, start: int, piece: PartitionRead) -> Read:
        self._positions[number] = piece.stop
        if piece.last:
            self._turn.remove(number)
        tag = _tag(self._own[number])
        place = number, tag + start, tag + piece.stop
        ports = piece.ports(self._ports)
        return Read(*place, ports, piece.checksum, piece.events, piece.last, counts=piece.counts)

    def _exhausted(self, number: int, at: int) -> Read:
        if number in self._turn:
            self._turn.remove(number)
        offset = _tag(self._own[number]) + at
        return Read(number, offset, offset, (None,) * self._ports, 0, 0, last=True)


def _tag(partition: Partition) -> int:
    return (
        (xxhash.xxh3_64_intdigest(partition.name.encode()) >> _TAG_SHIFT - 1 & 0xFFFF) << _TAG_SHIFT
        if partition.name
        else 0
    )


def _position(partition: Partition, offset: int) -> int:
    position = offset - _tag(partition)
    if not 0 <= position < POSITIONS:
        raise SourceError(
            f"{partition.name}: the list of inputs has changed since the checkpoint; put back what was removed or "
            "renamed, give new inputs names that sort after the others, or start over with --fresh"
        )
    return position
