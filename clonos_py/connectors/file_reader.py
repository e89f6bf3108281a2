"""Reads files that do not change while they are read, and refuses those that have changed since they were.

A job that had read its files may be run again: it reads those that were added, and lines that were added to others.
Where it reads on follows from the name and the position only. So before a file is read on after a restart, it is
compared with its last read: a file that another one has replaced is no longer what was read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from clonos_py.connectors.input_errors import REPLACED
from clonos_py.connectors.partitions import Partition, PartitionReader
from clonos_py.model.errors import SourceError
from clonos_py.model.operators import End, LastRead, Read, Wait


class FilePartition(Partition, Protocol):
    """A file as a partition."""

    def checksum(self, start: int, stop: int) -> int:
        """The checksum of a read, from the current content of the file. Raises SourceError if it has shrunk."""
        ...

    def check_end(self, position: int) -> None:
        """Raises SourceError if what follows a position that was the end of the file changes what was read before."""
        ...


class FileReader(PartitionReader):
    """The source of one task. ``make`` returns the partition of a file."""

    def __init__(self, count: int, make: Callable[[int], FilePartition], ports: int = 1) -> None:
        self._files: dict[int, FilePartition] = {}
        self._recalled: Callable[[int], LastRead | None] = lambda number: None
        self._unchecked: set[int] = set()
        super().__init__(count, lambda number: self._files.setdefault(number, make(number)), ports)

    def recall(self, last: Callable[[int], LastRead | None]) -> None:
        self._recalled = last

    def seek(self, positions: Mapping[int, int]) -> None:
        super().seek(positions)
        self._unchecked = {number for number, position in self._positions.items() if position}

    def poll(self, now: int) -> Read | Wait | End:
        if self._unchecked and self._turn and (number := self._turn[0]) in self._unchecked:
            self._check(number)
        return super().poll(now)

    def reread(self, partition: int, start: int, stop: int) -> Read:
        self._unchecked.discard(partition)  # the checksum of the read is compared by the caller
        return super().reread(partition, start, stop)

    def _check(self, number: int) -> None:
        self._unchecked.remove(number)
        last, file = self._recalled(number), self._files[number]
        if last is None:
            return
        stop = self._positions[number]
        start = stop - (last.stop - last.start)
        if file.checksum(start, stop) != last.checksum:
            raise SourceError(f"{file.name} was replaced or written again: what was read of it has changed; {REPLACED}")
        file.check_end(stop)
