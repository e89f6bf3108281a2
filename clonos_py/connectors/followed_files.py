"""A source that follows files: files may grow and be added, and the source never ends.

Each file is a partition, numbered by a hash of its path, so that tasks need no shared list of files. A file that was
removed has ended, and its position records that. If a file with that path appears later, it is refused: its first bytes
would count as already read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping

import xxhash

from clonos_py.connectors.input_errors import ENDED
from clonos_py.connectors.line_reader import LinePartition
from clonos_py.connectors.partitions import ACTIVE, PartitionRead
from clonos_py.model.errors import SourceError
from clonos_py.model.operators import Discovered, Read, Source, Wait

LIST_INTERVAL_US = 100_000
"""How often the task checks whether files have grown or been added."""
_NUMBER_BITS = 48
_END = 1 << 60
"""Added to the position of a removed file, so that checkpoints, landmarks and logs record that it has ended."""


def number_of(path: str) -> int:
    """The number of the partition for a file."""
    return xxhash.xxh3_64_intdigest(path.encode()) >> 64 - _NUMBER_BITS


class FollowedFiles(Source):
    """The source of one task. ``find`` lists the current files with their sizes in bytes; ``make`` returns the
    partition for a file, up to a size."""

    def __init__(
        self, find: Callable[[], Mapping[str, int]], make: Callable[[str, int], LinePartition], ports: int = 1
    ) -> None:
        """``ports``: 2 if files also give dead letters."""
        self._find, self._make, self._ports = find, make, ports
        self._found: dict[int, tuple[str, int]] = {}
        """Path and size of each file of this task at the last check, by number."""
        self._positions: dict[int, int] = {}
        self._open: dict[int, LinePartition] = {}
        self._turn: deque[int] = deque()
        """Files that may have unread lines."""
        self._removed: list[int] = []
        self._ended: set[int] = set()
        """Files whose end was reported in this attempt."""
        self._list_next_us = 0
        self._rows_max: int | None = None

    def partitions(self) -> int:
        """0: all partitions are discovered."""
        return 0

    def open(self, index: int, parallelism: int) -> None:
        self._index, self._parallelism = index, parallelism

    def limit(self, rows: int) -> None:
        self._rows_max = rows

    def seek(self, positions: Mapping[int, int]) -> None:
        self._positions = dict(positions)
        self._open, self._ended, self._list_next_us = {}, set(), 0
        self._turn.clear()
        self._removed.clear()

    def discovered(self, starts: Mapping[int, int]) -> None:
        self._positions |= starts
        self._list_next_us = 0

    def poll(self, now: int) -> Read | Wait | Discovered:
        if now >= self._list_next_us:
            self._list_next_us = now + LIST_INTERVAL_US
            self._list_files()
            if new := [number for number in self._found if number not in self._positions]:
                return Discovered(dict.fromkeys(new, 0))
        if self._removed:
            number = self._removed.pop()
            return self._end(number, self._positions[number])
        while self._turn:
            number = self._turn.popleft()
            start = self._positions[number]
            if (piece := self._file(number).next(start, self._rows_max)) is not None:
                self._turn.insert(ACTIVE - 1, number)
                return self._read(number, start, piece)
            del self._open[number]
        return Wait(self._list_next_us)

    def reread(self, partition: int, start: int, stop: int) -> Read:
        if stop >= _END:
            return self._end(partition, start)
        if partition not in self._found:
            self._list_files()
        if partition not in self._found:
            raise SourceError(
                "a followed file is missing whose rows have to be read again: files must stay where they are until a "
                "checkpoint has covered their rows"
            )
        return self._read(partition, start, self._file(partition).between(start, stop))

    def _read(self, number: int, start: int, piece: PartitionRead) -> Read:
        self._positions[number] = piece.stop
        ports = piece.ports(self._ports)
        return Read(number, start, piece.stop, ports, piece.checksum, piece.events, counts=piece.counts)

    def _end(self, number: int, start: int) -> Read:
        self._positions[number] = stop = start if start >= _END else start + _END
        self._ended.add(number)
        return Read(number, start, stop, (None,) * self._ports, 0, 0, last=True)

    def _list_files(self) -> None:
        """Updates the files and their sizes. Raises SourceError if a file that has ended exists again."""
        numbered = {number_of(path): (path, size) for path, size in sorted(self._find().items())}
        self._found = {n: found for n, found in numbered.items() if n % self._parallelism == self._index}
        for number, (path, _) in self._found.items():
            if self._positions.get(number, 0) >= _END:
                raise SourceError(f"{path} was removed and exists again: {ENDED}")
        self._removed = [n for n in self._positions if n not in self._found and n not in self._ended]
        self._turn = deque(n for n, at in self._positions.items() if n in self._found and self._found[n][1] != at)

    def _file(self, number: int) -> LinePartition:
        path, size = self._found[number]
        if number not in self._open:
            self._open[number] = self._make(path, size)
        self._open[number].grow(size)
        return self._open[number]
