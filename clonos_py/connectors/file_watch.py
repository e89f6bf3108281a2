"""Watches the files that a path matches: which were added and removed, and which have changed.

It works on every file system, without notifications of the operating system, which network file systems do not give. So
that many files cost little:

- A folder is listed only if its time of modification has changed. The time is coarse on some file systems, so the
  folder is listed until the time has been the same for a while; and now and then in any case, for file systems that do
  not keep the time.
- Files that changed a short time ago are looked at in each interval. The others take turns, a fixed number in each
  interval.
"""

from __future__ import annotations

import glob
import os
import stat
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from clonos_py.connectors.input_errors import folder_gone
from clonos_py.connectors.local_paths import check_name

INTERVAL_US = 100_000
"""How often the watch is to be asked for changes."""
_FILES_PER_INTERVAL = 200
"""The most files that are looked at because it is their turn, and the most because they changed a short time ago."""
_RECENT_US = 10_000_000
_NAMES_PER_INTERVAL = 2_000
"""A folder of more names is listed less often, so that listing takes a small part of the time."""
_SETTLED_US = 2_500_000
"""Longer than the time between two times of modification that a file system can tell apart."""


class FileState(NamedTuple):
    """What tells whether a file has changed, without reading it."""

    inode: tuple[int, int]
    size_bytes: int
    modified_ns: int


class FileChanges(NamedTuple):
    """The paths of files that were added or have changed; the files that were removed, with their last state."""

    added: list[str]
    changed: list[str]
    removed: dict[str, FileState]


class WatchedFiles(Protocol):
    """The files that a path names. ``files``: their states, as they were when they were last looked at."""

    files: dict[str, FileState]

    @property
    def names_nothing(self) -> str | None:
        """The path, if it is no pattern and there is neither a file nor a folder of this name."""
        ...

    def look(self, now_us: int, own: Callable[[str], bool], everything: bool = False) -> FileChanges:
        """The changes since the last call. ``own``: whether the caller needs the changes of a file. ``everything``:
        lists and looks at all files. Raises SourceError."""
        ...


class FileWatch:
    """The regular files that ``path`` matches: a file, those in a folder, or those of a pattern. Names in folders that
    begin with ``.`` or ``_`` are left out. ``files``: their states, as they were when they were last looked at."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.files: dict[str, FileState] = {}
        self._names: dict[str, int | None] = {}
        """All that matched at the last listing, with the inode of the name if the listing gave it."""
        self._turn: deque[str] = deque()
        self._in_turn: set[str] = set()
        self._recent: dict[str, int] = {}
        """When a file was seen to have changed, the earliest first."""
        self._place: tuple[str, int] | None = None
        """The folder, and the file system that it is on."""
        self._folder: tuple[int, int] | None = None
        self._same_since_us = 0
        self._listed_us: int | None = None

    def look(self, now_us: int, own: Callable[[str], bool], everything: bool = False) -> FileChanges:
        """The changes since the last call. ``own``: whether the caller needs the changes of a file. ``everything``:
        lists and looks at all files. Raises SourceError for a name that is not UTF-8, and if the folder is gone."""
        changes = FileChanges([], [], {})
        if everything or self._listing_is_due(now_us):
            self._list(now_us, own, changes)
        looked = {*changes.added, *changes.changed}
        for path in list(filter(own, self.files)) if everything else list(self._next(now_us)):
            if path in self.files and path not in looked and self._has_changed(path, now_us):
                changes.changed.append(path)
        return changes

    def _listing_is_due(self, now_us: int) -> bool:
        if self._listed_us is None:
            return True
        waited_us = now_us - self._listed_us
        if waited_us < INTERVAL_US * max(1, len(self._names) // _NAMES_PER_INTERVAL):
            return False
        if waited_us >= INTERVAL_US * max(1, len(self._names) // _FILES_PER_INTERVAL):
            return True
        return self._state_of_folder() != self._folder or now_us - self._same_since_us < _SETTLED_US

    def _list(self, now_us: int, own: Callable[[str], bool], changes: FileChanges) -> None:
        self._check_place()
        folder = self._state_of_folder()
        if folder != self._folder:
            self._folder, self._same_since_us = folder, now_us
        self._listed_us = now_us
        before, self._names = self._names, dict(self._matches())
        for path in before.keys() - self._names.keys():
            self._recent.pop(path, None)
            if (state := self.files.pop(path, None)) is not None:
                changes.removed[path] = state
        for path, inode in self._names.items():
            if path in before and before[path] == inode:
                continue
            check_name(path)
            if (state := _state_of(path)) is None:
                self._names[path] = -1  # it is looked at again with the next listing
                if (gone := self.files.pop(path, None)) is not None:
                    changes.removed[path] = gone
                continue
            if path not in self.files:
                changes.added.append(path)
                if own(path) and path not in self._in_turn:
                    self._in_turn.add(path)
                    self._turn.append(path)
            elif state != self.files[path]:
                changes.changed.append(path)
            self.files[path] = state
            self._note(path, now_us)

    @property
    def names_nothing(self) -> str | None:
        """The path, if it is no pattern and there is neither a file nor a folder of this name."""
        return None if glob.has_magic(self._path) or os.path.exists(self._path) else self._path

    @property
    def _folder_path(self) -> str:
        """The folder that is watched, or that of the file or pattern; empty for the working folder."""
        return self._path if os.path.isdir(self._path) else os.path.dirname(self._path)

    def _check_place(self) -> None:
        """Raises SourceError if the folder is gone, or lies on another file system than before."""
        folder = self._folder_path
        while glob.has_magic(folder):
            folder = os.path.dirname(folder)
        known, device = self._place or (folder or os.curdir, None)
        try:
            found = os.stat(known).st_dev
        except OSError:
            raise folder_gone(known) from None
        if device is not None and found != device:
            raise folder_gone(known)
        self._place = known, found

    def _state_of_folder(self) -> tuple[int, int] | None:
        """What changes when a name in the folder does; None if the path is a pattern for several folders."""
        folder = self._folder_path
        if glob.has_magic(folder):
            return None
        try:
            found = os.stat(folder)
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns

    def _matches(self) -> Iterator[tuple[str, int | None]]:
        if os.path.isdir(self._path):
            with os.scandir(self._path) as entries:
                for entry in entries:
                    if not entry.name.startswith((".", "_")):
                        yield entry.path, entry.inode()
        elif os.path.exists(self._path):
            yield self._path, None
        else:
            for path in glob.glob(self._path, recursive=True):
                if not os.path.basename(path).startswith((".", "_")):
                    yield path, None

    def _next(self, now_us: int) -> Iterator[str]:
        """The files to look at: those whose turn it is, then those that changed a short time ago."""
        looked: set[str] = set()
        for _ in range(min(_FILES_PER_INTERVAL, len(self._turn))):
            path = self._turn.popleft()
            if path not in self.files:
                self._in_turn.discard(path)
                continue
            self._turn.append(path)
            looked.add(path)
            yield path
        for path, since_us in list(self._recent.items()):
            if now_us - since_us > _RECENT_US:
                del self._recent[path]
            elif path not in looked:
                yield path

    def _has_changed(self, path: str, now_us: int) -> bool:
        state = _state_of(path)
        if state is None:
            self._listed_us = None  # it was removed
            return False
        if state == self.files[path]:
            return False
        self.files[path] = state
        self._note(path, now_us)
        return True

    def _note(self, path: str, now_us: int) -> None:
        """Records that a file has changed."""
        self._recent.pop(path, None)
        self._recent[path] = now_us
        if len(self._recent) > _FILES_PER_INTERVAL:
            del self._recent[next(iter(self._recent))]


def _state_of(path: str) -> FileState | None:
    """The state of a regular file; None if there is none."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    return FileState((status.st_dev, status.st_ino), status.st_size, status.st_mtime_ns)
