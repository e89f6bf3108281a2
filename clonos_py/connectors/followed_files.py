"""A source that follows files: files may grow and be added, and the source never ends.

Each file is a partition, numbered by a hash of its path, so that tasks need no shared list of files. A file that was
removed has ended, and its position records that. If a file with that path appears later, it is refused: its first bytes
would count as already read. If the whole folder is gone, such as a mounted one, no file has ended: that is an error.
So is a single followed file that is missing when a task starts.

Whether a file is still the same does not follow from its path and size. Before more of a file is read, the bytes of the
last read are compared with their checksum. A file that another one has replaced, or that was written again from its
start, is refused. So is a file under a new name, whose rows would be read twice: it has the inode of a file that was
removed, and the bytes of its last read. Two names of one file, by a hard or symbolic link, are refused, too.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import xxhash

from clonos_py.connectors.file_reader import FilePartition
from clonos_py.connectors.file_watch import INTERVAL_US, FileChanges, FileState, WatchedFiles
from clonos_py.connectors.input_errors import ENDED, MOVE, ONLY_GROW, file_gone, folder_gone
from clonos_py.connectors.partitions import ACTIVE, PartitionRead
from clonos_py.model.errors import SourceError
from clonos_py.model.operators import Discovered, LastRead, Read, Source, Wait

_NUMBER_BITS = 48
_INODE_MAX = (1 << 63) - 1
_END = 1 << 60
"""Added to the position of a removed file, so that checkpoints, landmarks and logs record that it has ended."""


def number_of(path: str) -> int:
    """The number of the partition for a file."""
    return xxhash.xxh3_64_intdigest(path.encode()) >> 64 - _NUMBER_BITS


class FollowedFile(FilePartition, Protocol):
    """A file that may have grown since it was opened."""

    @property
    def stored_bytes(self) -> int: ...

    def grow(self, stored_bytes: int) -> None:
        """Sets the current size of the file."""
        ...


class FollowedFiles(Source):
    """The source of one task. ``make`` returns the partition for a file, up to a size."""

    def __init__(self, watch: WatchedFiles, make: Callable[[str, int], FollowedFile], ports: int = 1) -> None:
        """``ports``: 2 if files also give dead letters."""
        self._watch, self._make, self._ports = watch, make, ports
        self._numbers: dict[str, int] = {}
        """The numbers of the present files, those of other tasks included."""
        self._paths: dict[tuple[int, int], str] = {}
        """A path of each present file, by its inode at the time; those of other tasks included."""
        self._found: dict[int, str] = {}
        """The paths of this task's files at the last look, by number."""
        self._recalled: Callable[[int], LastRead | None] = lambda number: None
        self._positions: dict[int, int] = {}
        self._open: dict[int, FollowedFile] = {}
        self._turn: deque[int] = deque()
        """Files that may have unread lines; ``_in_turn`` has the same."""
        self._in_turn: set[int] = set()
        self._new: list[int] = []
        self._removed: list[int] = []
        self._ended: set[int] = set()
        """Files whose end was reported in this attempt."""
        self._now_us = self._look_next_us = 0
        self._look_at_all = True
        self._rows_max: int | None = None

    def partitions(self) -> int:
        """0: all partitions are discovered."""
        return 0

    def open(self, index: int, parallelism: int) -> None:
        self._index, self._parallelism = index, parallelism

    def limit(self, rows: int) -> None:
        self._rows_max = rows

    def recall(self, last: Callable[[int], LastRead | None]) -> None:
        self._recalled = last

    def seek(self, positions: Mapping[int, int]) -> None:
        self._positions = dict(positions)
        self._open, self._ended, self._look_next_us, self._look_at_all = {}, set(), 0, True
        self._turn.clear()
        self._in_turn.clear()
        self._new.clear()
        self._removed.clear()

    def discovered(self, starts: Mapping[int, int]) -> None:
        self._positions |= starts
        self._new = [number for number in self._new if number not in starts]
        for number in starts:
            self._queue(number)

    def poll(self, now: int) -> Read | Wait | Discovered:
        if now >= self._look_next_us:
            self._now_us, self._look_next_us = now, now + INTERVAL_US
            self._look()
        if self._new:
            return Discovered(dict.fromkeys(self._new, 0))
        if self._removed:
            number = self._removed.pop()
            return self._end(number, self._positions[number])
        while self._turn:
            number = self._turn.popleft()
            if number in self._found:
                start = self._positions[number]
                if (piece := self._checked(number).next(start, self._rows_max)) is not None:
                    self._turn.insert(ACTIVE - 1, number)
                    return self._read(number, start, piece)
            self._in_turn.discard(number)
            self._open.pop(number, None)
        return Wait(self._look_next_us)

    def reread(self, partition: int, start: int, stop: int) -> Read:
        if stop >= _END:
            return self._end(partition, start)
        if partition not in self._found:
            self._look_at_all = True
            self._look()
        if partition not in self._found:
            raise SourceError(
                "a followed file is missing whose rows have to be read again: files must stay where they are until a "
                "checkpoint has covered their rows"
            )
        read = self._read(partition, start, self._file(partition).between(start, stop))
        self._queue(partition)
        return read

    def _read(self, number: int, start: int, piece: PartitionRead) -> Read:
        self._positions[number] = piece.stop
        ports, inode = piece.ports(self._ports), self._watch.files[self._found[number]].inode[1]
        place = number, start, piece.stop
        return Read(*place, ports, piece.checksum, piece.events, counts=piece.counts, identity=inode & _INODE_MAX)

    def _end(self, number: int, start: int) -> Read:
        self._positions[number] = stop = start if start >= _END else start + _END
        self._ended.add(number)
        return Read(number, start, stop, (None,) * self._ports, 0, 0, last=True)

    def _look(self) -> None:
        """Updates the files. Raises SourceError if a file that has ended exists again, or one has another name."""
        is_first, changes = self._look_at_all, self._watch.look(self._now_us, self._is_own, self._look_at_all)
        for path in changes.removed:
            self._leave(self._number(path))
        for path in changes.added:
            if self._is_own(path):
                self._found[self._number(path)] = path
        changed = [*changes.added, *changes.changed]
        if self._look_at_all:
            self._look_at_all = False
            self._removed = [n for n in self._positions if n not in self._found and n not in self._ended]
            missing = self._watch.names_nothing
            if self._removed and missing is not None:
                self._check_is_there(missing)
            changed = list(self._watch.files)
        new = []
        for path in changed:
            number = self._number(path)
            if number not in self._found:
                continue
            if number in self._removed:
                self._removed.remove(number)
            if number not in self._positions:
                new.append((path, number))
            elif self._positions[number] >= _END:
                raise SourceError(f"{path} was removed and exists again: {ENDED}")
            else:
                self._queue(number)
        if is_first:
            self._check_known_names()
        self._check_names(changes)
        for path, state in changes.removed.items():
            self._numbers.pop(path, None)
            if self._paths.get(state.inode) == path:
                del self._paths[state.inode]
        self._check_links([*changes.added, *changes.changed])
        waiting = [number for number in self._new if number not in self._positions]
        known = set(waiting)
        self._new = [*waiting, *(number for _, number in sorted(new) if number not in known)]

    def _number(self, path: str) -> int:
        if (number := self._numbers.get(path)) is None:
            number = self._numbers[path] = number_of(path)
        return number

    def _is_own(self, path: str) -> bool:
        return self._number(path) % self._parallelism == self._index

    def _queue(self, number: int) -> None:
        """A file may have unread lines."""
        if number in self._found and number not in self._in_turn:
            self._in_turn.add(number)
            self._turn.append(number)

    def _leave(self, number: int) -> None:
        """A file has been removed."""
        if self._found.pop(number, None) is None:
            return
        self._open.pop(number, None)
        if number in self._new:
            self._new.remove(number)
        if number in self._positions and number not in self._ended:
            self._removed.append(number)

    def _check_is_there(self, missing: str) -> None:
        """Raises SourceError unless ``missing``, the source's path, was a file that had ended."""
        at = self._positions.get(number_of(missing))
        if at is None:
            raise folder_gone(missing)
        if at < _END:
            raise file_gone(missing)

    def _check_links(self, paths: Sequence[str]) -> None:
        """Raises SourceError if one of the files has two names. Inodes are used again, so both names are looked up."""
        for path in paths:
            inode = self._watch.files[path].inode
            other = self._paths.get(inode, path)
            if other != path and _are_one_file(other, path):
                first, second = sorted((other, path))
                raise SourceError(
                    f"{first} and {second} are two names of one file, whose rows would be read twice: keep one of "
                    "them, and put the other into another folder, or give it a name that begins with . or _"
                )
            self._paths[inode] = path

    def _check_names(self, changes: FileChanges) -> None:
        """Raises SourceError if a removed file has another name now. Another file may have got its inode."""
        gone = {state.inode: path for path, state in changes.removed.items()}
        for path in changes.added if gone else ():
            state = self._watch.files[path]
            if (old := gone.get(state.inode)) is None:
                continue
            if changes.removed[old] == state or self._has_read(self._number(old), path, state):
                raise SourceError(f"{old} was renamed to {path}, and its rows would be read twice: {MOVE}")

    def _check_known_names(self) -> None:
        """Raises SourceError if a file that this task had read has another name since, by which it may be of another
        task. Only its last read is known."""
        removed = ((number, self._last(number)) for number in self._removed)
        gone = {last.identity: number for number, last in removed if last is not None}
        for path, state in self._watch.files.items() if gone else ():
            old = gone.get(state.inode[1] & _INODE_MAX)
            if old is not None and self._number(path) not in self._positions and self._has_read(old, path, state):
                raise SourceError(
                    f"{path} was read under another name before: its rows would be read twice; give it that name "
                    f"again, or {MOVE}"
                )

    def _has_read(self, number: int, path: str, state: FileState) -> bool:
        """Whether the last read of a file is found under another path."""
        last = self._last(number)
        if last is None or state.size_bytes < last.stop:
            return False
        return self._make(path, state.size_bytes).checksum(last.start, last.stop) == last.checksum

    def _last(self, number: int) -> LastRead | None:
        """The last read of a file that has not ended."""
        last = self._recalled(number)
        return last if last is not None and last.stop < _END else None

    def _checked(self, number: int) -> FollowedFile:
        """The partition of a file that may have grown. Raises SourceError if it is not what was read before."""
        path = self._found[number]
        is_open = number in self._open and self._open[number].stored_bytes == self._watch.files[path].size_bytes
        file = self._file(number)
        last = self._last(number)
        if not is_open and last is not None and file.checksum(last.start, last.stop) != last.checksum:
            raise SourceError(f"{path} was replaced or written again: what was read of it has changed; {ONLY_GROW}")
        return file

    def _file(self, number: int) -> FollowedFile:
        path = self._found[number]
        size_bytes = self._watch.files[path].size_bytes
        if number not in self._open:
            self._open[number] = self._make(path, size_bytes)
        self._open[number].grow(size_bytes)
        return self._open[number]


def _are_one_file(path: str, other: str) -> bool:
    try:
        return os.path.samefile(path, other)
    except FileNotFoundError:
        return False
