"""Temporary folders that processes hold as long as they live, so that others can see which ones were left behind.

A folder is held by a shared lock (flock) on a file in it, which the system gives back however its holder ends. The file
gets its name only when it is locked: where it is there and not locked, no holder is left. On a file system without such
locks it is never there, and the folder counts as held.
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
"""A folder that is just being removed is gone soon, and is then made again."""


class Hold:
    """One holder's lock. Ends with ``release``, or with the process."""

    def __init__(self, descriptor: int | None) -> None:
        """None: the file system has no locks."""
        self._descriptor = descriptor

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def hold(folder: Path) -> Hold:
    """Holds the folder, together with all others that do, and makes it where it is missing. Raises OSError where that
    cannot be done."""
    for _ in range(_ATTEMPTS):
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except FileExistsError:  # it was removed between two looks at it, or it is no folder
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
    """A folder of this process, which is removed at the end."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    held = hold(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        held.release()


@contextmanager
def unheld(folder: Path) -> Iterator[bool]:
    """Whether the folder was left behind; if so it cannot be held as long as the block lasts."""
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
    """Removes a folder that was left behind; the lock goes last, so that an interrupted removal is made up for."""
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
    """Puts a locked file there. Raises FileExistsError if another process was faster."""
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
    """A descriptor of the file, locked. Raises BlockingIOError if others forbid it, FileNotFoundError if the file has
    been removed meanwhile, another OSError where there are no locks."""
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
