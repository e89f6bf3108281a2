"""Opens checkpoint folders by path or URI."""

from __future__ import annotations

import os
from collections.abc import Sequence
from urllib.parse import unquote, urlsplit

from clonos_py.checkpoint.folder import Folder, LocalFolder
from clonos_py.model.errors import CheckpointError, SettingError


def open_folder(uri: str, *below: str, read_soon: bool = True) -> Folder:
    """``uri`` is a local path, or a URI with the scheme of an object store, as in ``s3://bucket/path``. Accesses no
    files. ``read_soon``: see ``LocalFolder``. Raises CheckpointError, and SettingError if the library for object stores
    is missing."""
    if "://" not in uri:
        return LocalFolder(os.path.join(os.path.abspath(os.path.expanduser(uri)), *below), read_soon)
    if uri.lower().startswith("file://"):
        return LocalFolder(os.path.join(unquote(urlsplit(uri).path), *below), read_soon)
    from clonos_py.model.object_uris import names_objects  # most processes need no URIs

    if names_objects(uri):
        return _in_object_store(uri, below)
    raise CheckpointError(
        f"{uri!r} is no checkpoint folder: give a path, such as that of a mounted file system, or a URI of an object "
        "store: s3://bucket/path, gs://bucket/path, az://container/path"
    )


def _in_object_store(uri: str, below: Sequence[str]) -> Folder:
    try:
        from clonos_py.checkpoint.object_folder import open_object_folder
    except ModuleNotFoundError as missing:
        raise SettingError(
            f"checkpoints in an object store need obstore: pip install 'clonos-py[object-store]' ({uri})"
        ) from missing
    return open_object_folder(uri, below)
