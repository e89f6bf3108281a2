"""Requests to an object store: S3 and what speaks its protocol, Google Cloud Storage, Azure (``obstore``).

An object is visible when it is complete. The client tries again for some time what fails for the moment; every error is
an ObjectStoreProblem, with its cause. ``requests`` counts what is paid for.

Variables of the environment name credentials, region and endpoint (docs/tasks/operating.md).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import ObjectStore, from_url

from clonos_py.object_store.problems import answered, understood

_PART_BYTES = 16 << 20
"""Larger objects are written in parts, so that the time limit of a request says only whether it makes progress."""
_STREAMED_BYTES = 8 << 20
"""The size of the parts of an object that is written bit by bit: so many bytes are kept in memory."""
_LISTED_AT_ONCE = 1_000
_DELETED_AT_ONCE = 1_000
_BACKOFF = {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=2), "base": 2}
_RETRIES_MAX = 100
_CLIENT: Any = {
    "allow_http": True,  # for endpoints that are given with http://; those of the clouds have https://
    "connect_timeout": timedelta(seconds=5),
    "timeout": timedelta(seconds=20),
}


class StoredObject(NamedTuple):
    """An object as the store lists it. ``version``: its ETag; empty if the store has none."""

    path: str
    size_bytes: int
    version: str


def open_client(uri: str, purpose: str, patience_s: float) -> ObjectClient:
    """A client for what lies at a URI such as ``s3://bucket/path``. Sends nothing. ``patience_s``: for how long a
    request that fails is tried again. Raises ValueError that names ``purpose`` and the remedy."""
    parts = urlsplit(uri)
    named = parts.password if parts.scheme.startswith("abfs") else parts.username
    if parts.query or parts.fragment or named:
        raise ValueError(
            f"{parts.scheme}://{parts.hostname}{parts.path} is given with more than bucket and path: give credentials, "
            "region and endpoint in the environment, such as AWS_ACCESS_KEY_ID, AWS_REGION and AWS_ENDPOINT_URL"
        )
    retries: Any = {
        "max_retries": _RETRIES_MAX,
        "retry_timeout": timedelta(seconds=patience_s),
        "backoff": _BACKOFF,
    }
    try:
        store = from_url(uri, client_options=_CLIENT, retry_config=retries)
    except (BaseError, ValueError) as problem:
        raise ValueError(
            f"{uri!r} is no {purpose} ({answered(str(problem))}): give a URI such as s3://bucket/path"
        ) from problem
    return ObjectClient(store, uri)


class ObjectClient:
    """The objects below a URI. Paths are relative to it, with ``/`` between components."""

    def __init__(self, store: ObjectStore, uri: str) -> None:
        self.root = uri.rstrip("/")
        self.requests: Counter[str] = Counter()
        self._store = store

    # ---- writing

    def put(self, path: str, content: bytes) -> None:
        parts = -(-len(content) // _PART_BYTES)
        with self.requesting("put", path, 1 if parts <= 1 else parts + 2):
            obstore.put(self._store, path, content, use_multipart=parts > 1, chunk_size=_PART_BYTES)

    def put_new(self, path: str, content: bytes, attributes: Mapping[str, str]) -> bool:
        """False if there is an object already. If the store cannot compare, the cause is NOT_SUPPORTED."""
        with self.requesting("put", path):
            try:
                named: Any = dict(attributes)
                obstore.put(self._store, path, content, mode="create", attributes=named, use_multipart=False)
            except AlreadyExistsError:
                return False
        return True

    def writer(self, path: str) -> ObjectWriting:
        """An object that is written bit by bit. It exists once it is closed."""
        with self.requesting("put", path):
            return ObjectWriting(self, path, obstore.open_writer(self._store, path, buffer_size=_STREAMED_BYTES))

    def copy(self, source: str, target: str) -> None:
        """Copies within the store, over an object that is there."""
        with self.requesting("copy", source):
            obstore.copy(self._store, source, target)

    def rename(self, source: str, target: str) -> None:
        with self.requesting("copy", source):
            obstore.rename(self._store, source, target)
        self.requests["delete"] += 1

    def delete(self, paths: Sequence[str]) -> None:
        """Deletes those of the objects that exist."""
        for start in range(0, len(paths), _DELETED_AT_ONCE):
            self._delete(paths[start : start + _DELETED_AT_ONCE])

    def _delete(self, paths: Sequence[str]) -> None:
        with self.requesting("delete", paths[0]):
            try:
                obstore.delete(self._store, paths)
            except FileNotFoundError:  # not all stores pass over what is gone
                for path in paths:
                    with suppress(FileNotFoundError):
                        obstore.delete(self._store, path)

    # ---- reading

    def get(self, path: str) -> memoryview:
        with self.requesting("get", path):
            return memoryview(obstore.get(self._store, path).bytes())

    def get_range(self, path: str, start: int, stop: int, version: str = "") -> memoryview:
        """The bytes from ``start`` to ``stop``, fewer if the object ends before; at least one is there. ``version``:
        that of which the bytes must be."""
        with self.requesting("get", path):
            if not version:
                return memoryview(obstore.get_range(self._store, path, start=start, end=stop))
            options: Any = {"range": (start, stop), "if_match": version}
            return memoryview(obstore.get(self._store, path, options=options).bytes())

    def attributes(self, path: str) -> Mapping[str, str]:
        with self.requesting("get", path):
            found: Any = obstore.get(self._store, path).attributes
            return dict(found)

    def head(self, path: str) -> StoredObject:
        with self.requesting("head", path):
            return _stored(obstore.head(self._store, path))

    # ---- listing

    def in_folder(self, path: str) -> tuple[list[StoredObject], list[str]]:
        """The objects in a folder, and the paths of its folders."""
        with self.requesting("list", path):
            found = obstore.list_with_delimiter(self._store, path or None)
        objects, folders = [_stored(one) for one in found["objects"]], list(found["common_prefixes"])
        self._count_listed(len(objects) + len(folders))
        return objects, folders

    def below(self, path: str) -> list[StoredObject]:
        """All objects in a folder and its folders, sorted by path."""
        with self.requesting("list", path):
            found = obstore.list(self._store, path or None).collect()
        self._count_listed(len(found))
        return sorted(map(_stored, found))

    def _count_listed(self, count: int) -> None:
        self.requests["list"] += max(0, count - 1) // _LISTED_AT_ONCE

    # ---- requests

    @contextmanager
    def requesting(self, operation: str, path: str, times: int = 1) -> Iterator[None]:
        """Counts a request, and turns its errors into ObjectStoreProblems."""
        self.requests[operation] += times
        try:
            yield
        except (BaseError, OSError, ValueError) as problem:
            raise understood(f"{self.root}/{path}".rstrip("/"), problem) from problem


class ObjectWriting:
    """An object that is being written. It is dropped if it is not closed; parts that were sent already stay in the
    store until a rule of the bucket deletes them."""

    def __init__(self, client: ObjectClient, path: str, stream: Any) -> None:
        self._client, self._path, self._stream = client, path, stream
        self._part_bytes = 0

    def write(self, content: bytes | memoryview) -> None:
        self._part_bytes += len(content)
        parts, self._part_bytes = divmod(self._part_bytes, _STREAMED_BYTES)
        with self._client.requesting("put", self._path, parts):
            self._stream.write(content)

    def close(self) -> None:
        with self._client.requesting("put", self._path, 0):
            self._stream.close()


def _stored(found: Any) -> StoredObject:
    return StoredObject(found["path"], int(found["size"]), found["e_tag"] or "")
