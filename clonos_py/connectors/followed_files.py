"""A source that follows files: files may grow and be added, and the source never ends.

Each file is a partition, numbered by a hash of its path, so that tasks need no shared list of files. A file that was
removed has ended, and its position records that. If a file with that path appears later, it is refused: its first bytes
would count as already read.

Whether a file is still the same does not follow from its path and size. Before more of a file is read, the bytes of the
last read are compared with their checksum. A file that another one has replaced, or that was written again from its
start, is refused. So is a file under a new name, whose rows would be read twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import xxhash

from clonos_py.connectors.input_errors import ENDED, ONLY_GROW
from clonos_py.connectors.line_reader import LinePartition
from clonos_py.connectors.partitions import ACTIVE, PartitionRead
from clonos_py.model.errors import SourceError
from clonos_py.model.operators import Discovered, Read, Source, Wait

LIST_INTERVAL_US = 100_000
"""How often the task checks whether files have grown or been added."""
_LISTED_PER_INTERVAL = 200
"""More files are checked less often, so that the checks take a small part of the time: 10 to 20 us for each file."""
_NUMBER_BITS = 48
_END = 1 << 60
"""Added to the position of a removed file, so that checkpoints, landmarks and logs record that it has ended."""


class FileState(NamedTuple):
    """What tells whether a file has changed, without reading it."""

    inode: tuple[int, int]
    size_bytes: int
    modified_ns: int


class _Found(NamedTuple):
    path: str
    state: FileState


class _LastRead(NamedTuple):
    """The last read of a file: all bytes from ``start`` to ``stop``, which have this checksum."""

    start: int
    stop: int
    checksum: int


def number_of(path: str) -> int:
    """The number of the partition for a file."""
    return xxhash.xxh3_64_intdigest(path.encode()) >> 64 - _NUMBER_BITS


class FollowedFiles(Source):
    """The source of one task. ``find`` lists the current files by path; ``make`` returns the partition for a file, up
    to a size."""

    def __init__(
        self, find: Callable[[], Mapping[str, FileState]], make: Callable[[str, int], LinePartition], ports: int = 1
    ) -> None:
        """``ports``: 2 if files also give dead letters."""
        self._find, self._make, self._ports = find, make, ports
        self._listed: Mapping[str, FileState] = {}
        """All files at the last check, those of other tasks included."""
        self._numbers: dict[str, int] = {}
        self._found: dict[int, _Found] = {}
        """The files of this task at the last check, by number."""
        self._read_up_to: dict[int, FileState] = {}
        """The state of each file when all of its complete lines had been read."""
        self._last: dict[int, _LastRead] = {}
        self._positions: dict[int, int] = {}
        self._open: dict[int, LinePartition] = {}
        self._turn: deque[int] = deque()
        """Files that may have unread lines."""
        self._new: list[int] = []
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

    def snapshot(self) -> Any:
        """The last read of each file."""
        return {number: list(last) for number, last in self._last.items()} or None

    def restore(self, saved: Any) -> None:
        self._last |= {int(number): _LastRead(*last) for number, last in saved.items()}

    def seek(self, positions: Mapping[int, int]) -> None:
        self._positions = dict(positions)
        self._last = {number: last for number, last in self._last.items() if positions.get(number) == last.stop}
        self._open, self._ended, self._list_next_us = {}, set(), 0
        self._read_up_to.clear()
        self._turn.clear()
        self._new.clear()
        self._removed.clear()

    def discovered(self, starts: Mapping[int, int]) -> None:
        self._positions |= starts
        self._queue_changed()

    def poll(self, now: int) -> Read | Wait | Discovered:
        if now >= self._list_next_us:
            self._list_files()
            self._list_next_us = now + LIST_INTERVAL_US * max(1, len(self._listed) // _LISTED_PER_INTERVAL)
        if self._new:
            return Discovered(dict.fromkeys(self._new, 0))
        if self._removed:
            number = self._removed.pop()
            return self._end(number, self._positions[number])
        while self._turn:
            number = self._turn.popleft()
            start = self._positions[number]
            if (piece := self._checked(number).next(start, self._rows_max)) is not None:
                self._turn.insert(ACTIVE - 1, number)
                return self._read(number, start, piece)
            self._read_up_to[number] = self._found[number].state
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
        self._last[number] = _LastRead(start, piece.stop, piece.checksum)
        ports = piece.ports(self._ports)
        return Read(number, start, piece.stop, ports, piece.checksum, piece.events, counts=piece.counts)

    def _end(self, number: int, start: int) -> Read:
        self._positions[number] = stop = start if start >= _END else start + _END
        self._last.pop(number, None)
        self._ended.add(number)
        return Read(number, start, stop, (None,) * self._ports, 0, 0, last=True)

    def _list_files(self) -> None:
        """Updates the files. Raises SourceError if a file that has ended exists again, or one has another name."""
        before, self._listed = self._listed, self._find()
        self._numbers = {path: self._numbers.get(path) or number_of(path) for path in self._listed}
        self._found = {
            number: _Found(path, self._listed[path])
            for path, number in self._numbers.items()
            if number % self._parallelism == self._index
        }
        for number, position in self._positions.items():
            if position >= _END and number in self._found:
                raise SourceError(f"{self._found[number].path} was removed and exists again: {ENDED}")
        self._check_names(before)
        self._removed = [n for n in self._positions if n not in self._found and n not in self._ended]
        self._queue_changed()

    def _queue_changed(self) -> None:
        """Updates the files that are new and those that may have unread lines."""
        found = self._found.items()
        new = sorted((one.path, number) for number, one in found if number not in self._positions)
        self._new = [number for _, number in new]
        changed = {n for n, one in found if self._read_up_to.get(n) != one.state}
        self._turn = deque(n for n in self._positions if n in changed) if changed else deque()

    def _check_names(self, before: Mapping[str, FileState]) -> None:
        """Raises SourceError if a file of ``before`` has another name now. Another file may have got its inode."""
        gone = {state.inode: path for path, state in before.items() if path not in self._listed}
        if not gone:
            return
        for path, state in self._listed.items():
            if path in before or (old := gone.get(state.inode)) is None:
                continue
            if before[old] == state or self._has_read(number_of(old), path, state):
                raise SourceError(
                    f"{old} was renamed to {path}, and its rows would be read twice: move files that have been read to "
                    "another folder, or to names that begin with . or _"
                )

    def _has_read(self, number: int, path: str, state: FileState) -> bool:
        """Whether the last read of a file is found under another path."""
        last = self._last.get(number)
        if last is None or state.size_bytes < last.stop:
            return False
        return self._make(path, state.size_bytes).checksum(last.start, last.stop) == last.checksum

    def _checked(self, number: int) -> LinePartition:
        """The partition of a file that may have grown. Raises SourceError if it is not what was read before."""
        is_open = number in self._open and self._open[number].size_bytes == self._found[number].state.size_bytes
        file = self._file(number)
        last = self._last.get(number)
        if not is_open and last is not None and file.checksum(last.start, last.stop) != last.checksum:
            path = self._found[number].path
            raise SourceError(f"{path} was replaced or written again: what was read of it has changed; {ONLY_GROW}")
        return file

    def _file(self, number: int) -> LinePartition:
        path, state = self._found[number]
        if number not in self._open:
            self._open[number] = self._make(path, state.size_bytes)
        self._open[number].grow(state.size_bytes)
        return self._open[number]
