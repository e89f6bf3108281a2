"""A folder in an object store.

An object is visible when it is complete, so ``write`` needs no temporary name. ``create`` is a conditional write: of
all writers of one name, one wins. The client tries again for some seconds what fails for the moment; what fails longer
is a StorageUnavailableError, after which the same call may succeed. ``requests`` counts what is paid for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress

import pyarrow as pa

from clonos_py.checkpoint.folder import Content, writer_id
from clonos_py.checkpoint.object_errors import does_not_compare, explained
from clonos_py.model.errors import CheckpointError
from clonos_py.object_store.client import ObjectClient, open_client
from clonos_py.object_store.problems import ObjectStoreProblem, ProblemCause

_RANGE_BYTES = 16 << 20
"""Larger ranges are read in parts of this size, so that the time limit of a request says only whether it makes
progress."""
_GAP_BYTES = 1 << 20
_DELETED_AT_ONCE = 1_000
_PATIENCE_S = 5.0
_WRITER = "clonoswriter"
"""The attribute that tells the writer of an object that was created."""


def open_object_folder(uri: str, below: Sequence[str]) -> ObjectFolder:
    """The folder at a URI of an object store. Sends nothing. Raises CheckpointError."""
    try:
        return ObjectFolder(open_client(uri, "checkpoint folder", _PATIENCE_S), below)
    except ValueError as problem:
        raise CheckpointError(str(problem)) from problem


class ObjectFolder:
    """A folder in an object store."""

    def __init__(self, client: ObjectClient, below: Sequence[str] = ()) -> None:
        """``below``: the folders that lead from the root of the client to this one."""
        self.root = "/".join([client.root, *below])
        self._client, self._prefix = client, "/".join(below)
        self._compares = False
        """Whether the store was seen to refuse to create an object twice."""
        self._unsettled: dict[str, str] = {}
        """By path: the attribute of an object whose creation was not answered."""

    @property
    def requests(self) -> Counter[str]:
        return self._client.requests

    # ---- writing

    def write(self, path: str, content: Content) -> None:
        with _explained():  # a copy: a request that was given up may be in the client's hands still
            self._client.put(self._at(path), bytes(content))

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
        with _explained():
            try:
                return self._client.put_new(self._at(path), bytes(content), {_WRITER: writer})
            except ObjectStoreProblem as problem:
                if problem.cause is ProblemCause.NOT_SUPPORTED:
                    raise does_not_compare(f"{self.root}/{path}") from problem
                raise

    def _is_by(self, path: str, writer: str) -> bool:
        """Whether this writer has created the object: a server may fail after it has written it, and is asked again."""
        with _explained(), suppress(FileNotFoundError):
            return self._client.attributes(self._at(path)).get(_WRITER) == writer
        return False

    # ---- reading

    def read(self, path: str) -> pa.Buffer:
        with _explained(reads=True):
            return pa.py_buffer(self._client.get(self._at(path)))

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[pa.Buffer]:
        """Asks for the size only if a range is large, or begins behind the end."""
        with _explained(reads=True):
            if any(length_bytes > _RANGE_BYTES for _, length_bytes in ranges):
                return self._read_within(path, ranges)
            try:
                return self._read_ranges(path, ranges)
            except ObjectStoreProblem as problem:
                if problem.cause is not ProblemCause.BEYOND_THE_END:
                    raise
                return self._read_within(path, ranges)

    def _read_within(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[pa.Buffer]:
        size_bytes = self._client.head(self._at(path)).size_bytes
        return self._read_ranges(path, [(at, max(0, min(length, size_bytes - at))) for at, length in ranges])

    def _read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[pa.Buffer]:
        """The bytes are copied into memory of Arrow, which is aligned for its kernels."""
        buffers = [pa.allocate_buffer(length_bytes) for _, length_bytes in ranges]
        ends = [0] * len(ranges)
        for start, stop in _spans(ranges):
            content = self._client.get_range(self._at(path), start, stop)
            for index, (offset, length_bytes) in enumerate(ranges):
                first, last = max(offset, start), min(offset + length_bytes, start + len(content))
                if first < last:
                    part = content[first - start : last - start]
                    memoryview(buffers[index]).cast("B")[first - offset : last - offset] = part
                    ends[index] = last - offset
        return [buffer.slice(0, end) for buffer, end in zip(buffers, ends, strict=True)]

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
        with _explained():
            objects, folders = self._client.in_folder(at)
        files = {_name(file.path): file.size_bytes for file in objects if file.path != at}
        return files, [_name(folder) for folder in folders]

    # ---- deleting

    def remove(self, path: str) -> None:
        with _explained():
            self._client.delete([self._at(path)])

    def remove_all(self, paths: Sequence[str]) -> list[CheckpointError]:
        problems: list[CheckpointError] = []
        for start in range(0, len(paths), _DELETED_AT_ONCE):
            try:
                with _explained():
                    self._client.delete([self._at(path) for path in paths[start : start + _DELETED_AT_ONCE]])
            except CheckpointError as problem:
                problems.append(problem)
        return problems

    def remove_folder(self, path: str) -> None:
        with _explained():
            self._client.delete([file.path for file in self._client.below(self._at(path))])

    def move(self, source: str, target: str) -> None:
        """Copies and deletes file by file, since an object store has no folders."""
        before, after = self._at(source), self._at(target)
        with _explained():
            for file in self._client.below(before):
                self._client.rename(file.path, after + file.path.removeprefix(before))

    def _at(self, path: str) -> str:
        return "/".join(part for part in (self._prefix, path) if part)


@contextmanager
def _explained(reads: bool = False) -> Iterator[None]:
    """Turns ObjectStoreProblems into CheckpointErrors."""
    try:
        yield
    except ObjectStoreProblem as problem:
        raise explained(problem, reads) from problem


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _spans(ranges: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The requests that together have all ranges, as (start, stop), none longer than ``_RANGE_BYTES``. Ranges that lie
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
    for at in range(start, stop, _RANGE_BYTES):
        yield at, min(at + _RANGE_BYTES, stop)
