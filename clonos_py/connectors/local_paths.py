"""Paths of files and folders as users give them."""

from __future__ import annotations

import os
import re

from clonos_py.model.errors import GraphError, SourceError
from clonos_py.model.object_uris import names_objects

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]+://")


LocalPath = str | os.PathLike[str]
"""A path as users give it."""


def local_path(owner: str, path: LocalPath) -> str:
    """The absolute path. Raises GraphError for a URI, which would name a local folder such as ``s3:``, for an empty
    path, which would be the current folder, and for what is no path."""
    path = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(path, str) or not path:
        raise GraphError(f"{owner}: {path!r} is not a path: give one as text or as a pathlib.Path")
    if _URI.match(path):
        raise GraphError(
            f"{owner}: {path!r} is a URI, and only paths of the file system are supported: give a local path, or mount "
            "the storage and give the path of the mount"
        )
    return os.path.abspath(os.path.expanduser(path))


def path_or_objects(owner: str, path: LocalPath) -> str:
    """The absolute path, or the URI of objects in an object store as it is. Raises GraphError for other URIs, and for
    what is no path."""
    if not isinstance(path, str) or not names_objects(path):
        return local_path(owner, path)
    if "/" in (components := path.partition("://")[2]) and components.partition("/")[0]:
        return path
    raise GraphError(f"{owner}: {path!r} names a bucket and no place in it: give a URI such as s3://bucket/path")


def check_name(path: str) -> None:
    """Raises SourceError for the path of an input file that is not UTF-8: it could not be written to a checkpoint."""
    try:
        path.encode()
    except UnicodeEncodeError:
        raise SourceError(f"{path!a}: the name of the file is not UTF-8; rename it") from None
