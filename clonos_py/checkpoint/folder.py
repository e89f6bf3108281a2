"""A folder of durable files: the contract, and the folder on a local disk or on one that is mounted.

``write`` returns when the content would survive a power failure, and a reader sees all of a file or nothing: a file is
written under a temporary name, flushed and renamed. Errors are CheckpointErrors with path and remedy.

Only the owner may read the files, and only regular files are read: a FIFO or a symbolic link in place of a file is an
error. Symbolic links in the path to the folder are followed.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import count
from types import MappingProxyType
from typing import Protocol

import pyarrow as pa

from clonos_py.checkpoint.layout import TEMPORARY_SUFFIX
from clonos_py.model.durable_folders import flush_folder, make_folder
from clonos_py.model.errors import DAMAGED_REMEDY, CheckpointError, UnreadableCheckpointError

Content = bytes | memoryview
_MODE = 0o700
_READ_ONLY = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_attempts = count()


class Folder(Protocol):
    """Files by path relative to the folder, with ``/`` between components."""

    root: str

    @property
    def requests(self) -> Mapping[str, int]:
        """By operation: how many requests were sent to an object store; empty for other folders."""
        ...

    def write(self, path: str, content: Content) -> None: ...

    def create(self, path: str, content: Content) -> bool:
        """Writes a file that must not exist yet. Returns False if it does."""
        ...

    def read(self, path: str) -> pa.Buffer: ...

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[pa.Buffer]:
        """The bytes at each (offset, size); fewer if the file ends before."""
        ...

    def names(self, path: str) -> list[str]:
        """The names of the files and folders in a folder, sorted; empty if there is no such folder."""
        ...

    def sizes(self, path: str) -> dict[str, int]:
        """The regular files in a folder with their sizes in bytes; empty if there is no such folder."""
        ...

    def remove(self, path: str) -> None:
        """Deletes a file if it exists."""
        ...

    def remove_all(self, paths: Sequence[str]) -> list[CheckpointError]:
        """Deletes files, those that exist. One that cannot be deleted does not prevent the deletion of the others."""
        ...

    def remove_folder(self, path: str) -> None:
        """Deletes a folder that holds only files, and these."""
        ...

    def move(self, source: str, target: str) -> None:
        """Moves a folder."""
        ...


class LocalFolder:
    """A folder on this machine, or one mounted on it."""

    requests: Mapping[str, int] = MappingProxyType({})

    def __init__(self, root: str, read_soon: bool = True) -> None:
        """``read_soon``: whether files may be read soon after they are written. If not, the system need not keep what
        is on disk in memory, too; the next file is then written into the same memory."""
        self.root, self._read_soon = root, read_soon
        self._made: set[str] = set()
        """The folders whose entries this process has made durable."""

    def write(self, path: str, content: Content) -> None:
        temporary = self._write_temporary(path, content)
        with named_errors(self._at(path)):
            os.rename(temporary, self._at(path))
            flush_folder(os.path.dirname(temporary))

    def create(self, path: str, content: Content) -> bool:
        temporary = self._write_temporary(f"{path}.{writer_id()}", content)
        with named_errors(self._at(path)):
            try:
                os.link(temporary, self._at(path))
                flush_folder(os.path.dirname(temporary))
            except FileExistsError:
                return False
            finally:
                os.unlink(temporary)
        return True

    def read(self, path: str) -> pa.Buffer:
        with reading(self._at(path)), _opened(self._at(path)) as (descriptor, size_bytes):
            return _read_at(descriptor, 0, size_bytes)

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[pa.Buffer]:
        with reading(self._at(path)), _opened(self._at(path)) as (descriptor, size_bytes):
            return [
                _read_at(descriptor, offset, max(0, min(length_bytes, size_bytes - offset)))
                for offset, length_bytes in ranges
            ]

    def names(self, path: str) -> list[str]:
        with reading(self._at(path)):
            try:
                return sorted(os.listdir(self._at(path)))
            except FileNotFoundError:
                return []

    def sizes(self, path: str) -> dict[str, int]:
        with reading(self._at(path)):
            try:
                with os.scandir(self._at(path)) as entries:
                    sizes = {entry.name: _size(entry) for entry in entries if entry.is_file(follow_symlinks=False)}
            except FileNotFoundError:
                return {}
        return {name: size for name, size in sizes.items() if size is not None}

    def remove(self, path: str) -> None:
        with named_errors(self._at(path)):
            try:
                os.unlink(self._at(path))
            except FileNotFoundError:
                return

    def remove_all(self, paths: Sequence[str]) -> list[CheckpointError]:
        problems: list[CheckpointError] = []
        for path in paths:
            try:
                self.remove(path)
            except CheckpointError as problem:
                problems.append(problem)
        return problems

    def remove_folder(self, path: str) -> None:
        for name in self.names(path):
            self.remove(f"{path}/{name}")
        with named_errors(self._at(path)), suppress(FileNotFoundError):
            os.rmdir(self._at(path))

    def move(self, source: str, target: str) -> None:
        with named_errors(self._at(target)):
            self._make_folder(os.path.dirname(self._at(target)))
            os.rename(self._at(source), self._at(target))
            flush_folder(self.root)
            flush_folder(os.path.dirname(self._at(target)))

    def _at(self, path: str) -> str:
        return os.path.join(self.root, path)

    def _make_folder(self, path: str) -> None:
        if path not in self._made or not os.path.isdir(path):
            make_folder(path, _MODE)
            self._made.add(path)

    def _write_temporary(self, path: str, content: Content) -> str:
        temporary = self._at(path) + TEMPORARY_SUFFIX
        with named_errors(temporary):
            self._make_folder(os.path.dirname(temporary))
            try:
                _write_flushed(temporary, content, self._read_soon)
            except OSError:
                _discard(temporary)
                raise
        return temporary


def writer_id() -> str:
    """A name for one attempt to write, unlike all others: of any thread, process and machine."""
    return f"{os.uname().nodename}-{os.getpid()}-{next(_attempts)}"


def reading(path: str) -> AbstractContextManager[None]:
    """Turns errors of the operating system into UnreadableCheckpointErrors."""
    return _turned(path, UnreadableCheckpointError)


def named_errors(path: str) -> AbstractContextManager[None]:
    """Turns errors of the operating system while files are written into CheckpointErrors."""
    return _turned(path, CheckpointError)


@contextmanager
def _turned(path: str, kind: type[CheckpointError]) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise UnreadableCheckpointError(f"{path} is missing; {DAMAGED_REMEDY}") from error
    except (OSError, pa.ArrowException) as error:
        raise kind(f"{path}: {_explained(error)}") from error


def _explained(error: Exception) -> str:
    code = getattr(error, "errno", None)
    if code in _FULL:
        return "the checkpoint folder is full: free space, or resume with a copy of it elsewhere"
    if code in _READ_ONLY:
        return "the checkpoint folder cannot be written: allow it, or choose another folder"
    if code == errno.ELOOP:
        return "it is a symbolic link, which no checkpoint contains: put the file itself there"
    return f"the checkpoint folder does not work ({error})"


@contextmanager
def _opened(path: str) -> Iterator[tuple[int, int]]:
    """A regular file's descriptor and size in bytes. Opening never blocks, even on a FIFO."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise UnreadableCheckpointError(f"{path} is no regular file; {DAMAGED_REMEDY}")
        yield descriptor, found.st_size
    finally:
        os.close(descriptor)


def _read_at(descriptor: int, offset: int, size_bytes: int) -> pa.Buffer:
    """The bytes at an offset, fewer if the file ends before. Arrow allocates memory aligned for its kernels."""
    buffer = pa.allocate_buffer(size_bytes)
    left = memoryview(buffer)
    while left and (count := os.preadv(descriptor, [left], offset + size_bytes - len(left))):
        left = left[count:]
    return buffer.slice(0, size_bytes - len(left))


def _write_flushed(path: str, content: Content, read_soon: bool) -> None:
    """Writes a new file. A file that a failed writer or another program left under this name is deleted first."""
    _discard(path)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        left = memoryview(content)
        while left:
            left = left[os.write(descriptor, left) :]
        os.fsync(descriptor)
        if not read_soon and sys.platform == "linux":
            with suppress(OSError):  # it is only advice
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def _size(entry: os.DirEntry[str]) -> int | None:
    """None if the file has disappeared since it was listed, because another process has renamed or deleted it."""
    try:
        return entry.stat(follow_symlinks=False).st_size
    except FileNotFoundError:
        return None


def _discard(path: str) -> None:
    """Deletes a partial file, so that it does not use disk space that is needed."""
    with suppress(FileNotFoundError):
        os.unlink(path)
