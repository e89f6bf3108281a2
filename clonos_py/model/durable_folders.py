"""Folders whose entries survive a power failure. A file is only as durable as the entries of all folders above it."""

from __future__ import annotations

import errno
import os
from contextlib import suppress

_NOT_OURS = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.EINVAL, errno.ENOTSUP})


def make_folder(path: str, mode: int = 0o777) -> None:
    """Makes a folder with its missing parents, and makes the entry of each of them durable. Raises OSError.

    The entry of a folder that exists is made durable, too: the process that made the folder may have died before it did
    so. The exception is a folder in one that this process may not open, which was made by somebody else.
    """
    path = os.path.abspath(path)
    parent = os.path.dirname(path)
    if os.path.isdir(path):
        try:
            flush_folder(parent)
        except OSError as error:
            if error.errno not in _NOT_OURS:
                raise
        return
    make_folder(parent, mode)
    with suppress(FileExistsError):  # made by another process; if it is a file, its use raises an error
        os.mkdir(path, mode)
    flush_folder(parent)


def flush_folder(path: str) -> None:
    """Makes new, renamed and removed entries of a folder durable. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
