"""Temporary folders that processes hold while they run, so that other runs can see which folders were left behind.

A process holds a folder by a shared lock (flock) on a file in it. The system releases the lock when the process ends in
any way. The file gets its name only when it is locked: if it exists without a lock, no holder is left. On a file system
without such locks the file never exists, and the folder counts as held.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

LOCK_FILE = "held.lock"
_ATTEMPTS, _PAUSE_S = 100, 0.02
"""A folder that another process is removing is gone soon, and is then created again."""


class Hold:
    """One holder's lock. Ends with ``release``, or with the process."""

    def __init__(self, descriptor: int | None) -> None:
        """``descriptor``: of the locked file; None if the file system has no locks."""
        self._descriptor = descriptor

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def hold(folder: Path) -> Hold:
    """Holds the folder; other processes may hold it, too. Creates the folder if it is missing. Raises OSError if that
    is not possible."""
    for _ in range(_ATTEMPTS):
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except FileExistsError:  # it was removed during the call, or it is no folder
            time.sleep(_PAUSE_S)
            continue
        try:
            return Hold(_join(folder) if (folder / LOCK_FILE).exists() else _begin(folder))
        except (FileNotFoundError, FileExistsError, BlockingIOError):
            time.sleep(_PAUSE_S)
        except OSError:
            break
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return Hold(None)


@contextmanager
def temporary(prefix: str) -> Iterator[Path]:
    """A temporary folder of this process, removed at the end of the block."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    held = hold(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        held.release()


@contextmanager
def unheld(folder: Path) -> Iterator[bool]:
    """Whether the folder was left behind. If so, no process can hold it inside the block."""
    try:
        descriptor = _locked(folder / LOCK_FILE, os.O_RDWR, fcntl.LOCK_EX)
    except OSError:
        yield False
        return
    try:
        yield True
    finally:
        os.close(descriptor)


def remove(folder: Path) -> None:
    """Removes a folder that was left behind. The lock goes last, so that a later call can complete a broken removal."""
    with suppress(OSError):
        for path in folder.iterdir():
            if path.name == LOCK_FILE:
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
        (folder / LOCK_FILE).unlink(missing_ok=True)
        folder.rmdir()


def _join(folder: Path) -> int:
    return _locked(folder / LOCK_FILE, os.O_RDWR, fcntl.LOCK_SH)


def _begin(folder: Path) -> int:
    """Creates the lock file, already locked. Raises FileExistsError if another process was faster."""
    made = folder / f"{LOCK_FILE}.{secrets.token_hex(6)}"
    descriptor = _locked(made, os.O_RDWR | os.O_CREAT | os.O_EXCL, fcntl.LOCK_SH)
    try:
        os.link(made, folder / LOCK_FILE)
    except OSError:
        os.close(descriptor)
        raise
    finally:
        made.unlink(missing_ok=True)
    return descriptor


def _locked(path: Path, flags: int, kind: int) -> int:
    """The descriptor of the file, locked. Raises BlockingIOError if a lock of another process conflicts,
    FileNotFoundError if the file has been removed meanwhile, another OSError if the file system has no locks."""
    descriptor = os.open(path, flags | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        if os.stat(path).st_ino != os.fstat(descriptor).st_ino:
            raise FileNotFoundError(path)
    except OSError:
        os.close(descriptor)
        if flags & os.O_CREAT:
            path.unlink(missing_ok=True)
        raise
    return descriptor
