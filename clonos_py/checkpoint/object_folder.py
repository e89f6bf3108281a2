"""A folder in an object store: S3 and what speaks its protocol, Google Cloud Storage, Azure (``obstore``).

An object is visible when it is complete, so ``write`` needs no temporary name. ``create`` is a conditional write: of
all writers of one name, one wins. The client tries again for some seconds what fails for the moment; what fails longer
is a StorageUnavailableError, after which the same call may succeed. ``requests`` counts what is paid for.

Variables of the environment name credentials, region and endpoint (docs/tasks/operating.md).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import obstore
import pyarrow as pa
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import ObjectStore, from_url

from clonos_py.checkpoint.folder import Content, writer_id
from clonos_py.checkpoint.object_errors import (
    answered,
    does_not_compare,
    explained,
    is_beyond_the_end,
    is_not_supported,
)
from clonos_py.model.errors import CheckpointError

_PART_BYTES = 16 << 20
"""Larger objects are written in parts and read in ranges of this size, so that the time limit of a request says only
whether it makes progress."""
_GAP_BYTES = 1 << 20
_LISTED_AT_ONCE = 1_000
_DELETED_AT_ONCE = 1_000
_WRITER = "clonoswriter"
"""The attribute that tells the writer of an object that was created."""
_RETRIES: Any = {
    "max_retries": 100,
    "retry_timeout": timedelta(seconds=5),
    "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=2), "base": 2},
}
_CLIENT: Any = {
    "allow_http": True,  # for endpoints that are given with http://; those of the clouds have https://
    "connect_timeout": timedelta(seconds=5),
    "timeout": timedelta(seconds=20),
}


def open_object_folder(uri: str, below: Sequence[str]) -> ObjectFolder:
    """The folder at a URI of an object store. Sends nothing. Raises CheckpointError."""
    parts = urlsplit(uri)
    named = parts.password if parts.scheme.startswith("abfs") else parts.username
    if parts.query or parts.fragment or named:
        raise CheckpointError(
            f"{parts.scheme}://{parts.hostname}{parts.path} is given with more than bucket and path: give credentials, "
            "region and endpoint in the environment, such as AWS_ACCESS_KEY_ID, AWS_REGION and AWS_ENDPOINT_URL"
        )
    try:
        store = from_url(uri, client_options=_CLIENT, retry_config=_RETRIES)
    except (BaseError, ValueError) as problem:
        raise CheckpointError(
            f"{uri!r} is no checkpoint folder ({answered(str(problem))}): give a URI such as s3://bucket/path"
        ) from problem
    return ObjectFolder(store, uri, below)


class ObjectFolder:
    """A folder in a store of ``obstore``."""

    def __init__(self, store: ObjectStore, uri: str, below: Sequence[str] = ()) -> None:
        """``uri``: the URI of the store, for messages. ``below``: the folders in it that lead to this one."""
        self.root = "/".join([uri.rstrip("/"), *below])
        self.requests: Counter[str] = Counter()
        self._store, self._prefix = store, "/".join(below)
        self._compares = False
        """Whether the store was seen to refuse to create an object twice."""
        self._unsettled: dict[str, str] = {}
        """By path: the attribute of an object whose creation was not answered."""

    # ---- writing

    def write(self, path: str, content: Content) -> None:
        copy = bytes(content)  # a request that was given up may be in the client's hands still
        parts = -(-len(copy) // _PART_BYTES)
        with self._requesting("put", path, 1 if parts <= 1 else parts + 2):
            obstore.put(self._store, self._at(path), copy, use_multipart=parts > 1, chunk_size=_PART_BYTES)

    def create(self, path: str, content: Content) -> bool:
        """Also True if it is found that an earlier call, which got no answer, has created the object."""
        writer = self._unsettled.setdefault(path, writer_id())
        created = self._put_new(path, content, writer) or self._is_by(path, writer)
        if created and not self._compares:
            if self._put_new(path, content, f"{writer}-again"):
                raise does_not_compare(f"{self.root}/{path}")
            self._compares = True
        del self._unsettled[path]
        return created

    def _put_new(self, path: str, content: Content, writer: str) -> bool:
        with self._requesting("put", path):
            try:
                attributes: Any = {_WRITER: writer}
                obstore.put(
                    self._store,
                    self._at(path),
                    bytes(content),
                    mode="create",
                    attributes=attributes,
                    use_multipart=False,
                )
            except AlreadyExistsError:
                return False
            except BaseError as problem:
                if is_not_supported(problem):
                    raise does_not_compare(f"{self.root}/{path}") from problem
                raise
        return True

    def _is_by(self, path: str, writer: str) -> bool:
        """Whether this writer has created the object: a server may fail after it has written it, and is asked again."""
        with self._requesting("get", path), suppress(FileNotFoundError):
            return obstore.get(self._store, self._at(path)).attributes.get(_WRITER) == writer
        return False

    # ---- reading

    def read(self, path: str) -> pa.Buffer:
        with self._requesting("get", path, reads=True):
            return pa.py_buffer(obstore.get(self._store, self._at(path)).bytes())

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[pa.Buffer]:
        """Asks for the size only if a range is large, or begins behind the end."""
        if any(length_bytes > _PART_BYTES for _, length_bytes in ranges):
            return self._read_within(path, ranges)
        try:
            return self._read_ranges(path, ranges)
        except _BeyondTheEnd:
            return self._read_within(path, ranges)

    def _read_within(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[pa.Buffer]:
        size_bytes = self._size(path)
        return self._read_ranges(path, [(at, max(0, min(length, size_bytes - at))) for at, length in ranges])

    def _read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[pa.Buffer]:
        """The bytes are copied into memory of Arrow, which is aligned for its kernels."""
        buffers = [pa.allocate_buffer(length_bytes) for _, length_bytes in ranges]
        ends = [0] * len(ranges)
        for start, stop in _spans(ranges):
            content = self._get_range(path, start, stop)
            for index, (offset, length_bytes) in enumerate(ranges):
                first, last = max(offset, start), min(offset + length_bytes, start + len(content))
                if first < last:
                    part = content[first - start : last - start]
                    memoryview(buffers[index]).cast("B")[first - offset : last - offset] = part
                    ends[index] = last - offset
        return [buffer.slice(0, end) for buffer, end in zip(buffers, ends, strict=True)]

    def _get_range(self, path: str, start: int, stop: int) -> memoryview:
        with self._requesting("get", path, reads=True):
            return memoryview(obstore.get_range(self._store, self._at(path), start=start, end=stop))

    def _size(self, path: str) -> int:
        with self._requesting("head", path, reads=True):
            return int(obstore.head(self._store, self._at(path))["size"])

    # ---- listing

    def names(self, path: str) -> list[str]:
        files, folders = self._list(path)
        return sorted({*files, *folders})

    def sizes(self, path: str) -> dict[str, int]:
        return self._list(path)[0]

    def _list(self, path: str) -> tuple[dict[str, int], list[str]]:
        """The files in a folder with their sizes, and its folders. An empty object under the name of the folder itself
        is none of its files: tools make such objects to show that there is a folder."""
        at = self._at(path)
        with self._requesting("list", path):
            found = obstore.list_with_delimiter(self._store, at or None)
        files = {_name(file["path"]): int(file["size"]) for file in found["objects"] if file["path"] != at}
        folders = [_name(folder) for folder in found["common_prefixes"]]
        self.requests["list"] += max(0, len(files) + len(folders) - 1) // _LISTED_AT_ONCE
        return files, folders

    def _below(self, path: str) -> list[str]:
        """The paths in the store of all files in a folder and its folders."""
        with self._requesting("list", path):
            found = [file["path"] for file in obstore.list(self._store, self._at(path)).collect()]
        self.requests["list"] += max(0, len(found) - 1) // _LISTED_AT_ONCE
        return sorted(found)

    # ---- deleting

    def remove(self, path: str) -> None:
        self._delete(path, [self._at(path)])

    def remove_all(self, paths: Sequence[str]) -> list[CheckpointError]:
        problems: list[CheckpointError] = []
        for start in range(0, len(paths), _DELETED_AT_ONCE):
            together = paths[start : start + _DELETED_AT_ONCE]
            try:
                self._delete(together[0], [self._at(path) for path in together])
            except CheckpointError as problem:
                problems.append(problem)
        return problems

    def remove_folder(self, path: str) -> None:
        found = self._below(path)
        for start in range(0, len(found), _DELETED_AT_ONCE):
            self._delete(path, found[start : start + _DELETED_AT_ONCE])

    def _delete(self, path: str, at: Sequence[str]) -> None:
        with self._requesting("delete", path):
            try:
                obstore.delete(self._store, at)
            except FileNotFoundError:  # not all stores pass over what is gone
                for one in at:
                    with suppress(FileNotFoundError):
                        obstore.delete(self._store, one)

    def move(self, source: str, target: str) -> None:
        """Copies and deletes file by file, since an object store has no folders."""
        before, after = self._at(source), self._at(target)
        for path in self._below(source):
            with self._requesting("copy", source):
                obstore.rename(self._store, path, after + path.removeprefix(before))
            self.requests["delete"] += 1

    # ---- requests

    def _at(self, path: str) -> str:
        return "/".join(part for part in (self._prefix, path) if part)

    @contextmanager
    def _requesting(self, operation: str, path: str, times: int = 1, reads: bool = False) -> Iterator[None]:
        """Counts a request, and turns its errors into CheckpointErrors."""
        self.requests[operation] += times
        try:
            yield
        except (BaseError, OSError, ValueError, pa.ArrowException) as problem:
            place = f"{self.root}/{path}".rstrip("/")
            if is_beyond_the_end(str(problem)):
                raise _BeyondTheEnd(place) from problem
            raise explained(place, problem, reads) from problem


class _BeyondTheEnd(CheckpointError):
    """A file ends before a requested range."""


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _spans(ranges: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The requests that together have all ranges, as (start, stop), none longer than ``_PART_BYTES``. Ranges that lie
    close together share one: a request takes longer than to read the bytes between them."""
    at, until = 0, 0
    for start, stop in sorted((offset, offset + length_bytes) for offset, length_bytes in ranges if length_bytes):
        if until and start <= until + _GAP_BYTES:
            until = max(until, stop)
        else:
            yield from _parts(at, until)
            at, until = start, stop
    yield from _parts(at, until)


def _parts(start: int, stop: int) -> Iterator[tuple[int, int]]:
    for at in range(start, stop, _PART_BYTES):
        yield at, min(at + _PART_BYTES, stop)
