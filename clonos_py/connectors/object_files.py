"""Input files in object stores: which objects a URI names, their bytes, and which are new.

An object that is read must stay as it is. So each request names the version that was listed, and the store answers with
that version or with an error. Requests that fail are tried again for a minute (``PATIENCE_S``), and then end the job,
which goes on from its last checkpoint with the next run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

import xxhash

from clonos_py.connectors.file_watch import FileChanges, FileState
from clonos_py.connectors.input_errors import named_errors
from clonos_py.connectors.names import by_number
from clonos_py.model.errors import GraphError, SourceError
from clonos_py.object_store.client import ObjectClient, StoredObject, open_client

PATIENCE_S = 60.0
LINE_BLOCK_BYTES = 8 << 20
"""How much of a file of lines is read with one request."""
PARQUET_BLOCK_BYTES = 1 << 16
_LIST_EVERY_US = 5_000_000
_NAMES_PER_LISTING = 10_000
"""A folder of more objects is listed less often: a request gives a thousand of them."""
_MAGIC = re.compile(r"[*?[]")


class FoundObject(NamedTuple):
    """An object, by its URI. ``version``: what changes if another object takes its place."""

    uri: str
    size_bytes: int
    version: str


class ObjectFiles:
    """The objects that ``uri`` names: one object, those of a folder, or those of a pattern. Names that begin with ``.``
    or ``_`` are left out of folders and patterns. Raises GraphError if no client can be made for the URI."""

    def __init__(self, owner: str, uri: str) -> None:
        self.uri = uri
        self._client, self._path = client_for(owner, uri)

    def find(self) -> list[FoundObject]:
        """The objects, sorted by name. Raises SourceError."""
        with named_errors(self.uri):
            return sorted(self._found(one) for one in self._named())

    def content(self, found: FoundObject, block_bytes: int) -> ObjectContent:
        """The bytes of an object. ``block_bytes``: how many are read at once."""
        return ObjectContent(self._client, found, self._key(found.uri), block_bytes)

    def read(self, uri: str) -> bytes:
        """An object of this bucket as a whole. Raises OSError."""
        return bytes(self._client.get(self._key(uri)))

    def size(self, uri: str) -> int:
        """The size of an object of this bucket in bytes. Raises SourceError."""
        with named_errors(uri):
            return self._client.head(self._key(uri)).size_bytes

    def contents(self) -> Iterator[tuple[str, bytes]]:
        """The objects in a folder and its folders, by URI, ordered by name, with numbers in names compared by value.
        Raises OSError."""
        folder = self._path.rstrip("/")
        found = [one for one in self._client.below(folder) if _is_shown(one.path.removeprefix(f"{folder}/"))]
        for one in sorted(found, key=lambda one: by_number(one.path)):
            yield f"{self._client.root}/{one.path}", bytes(self._client.get(one.path))

    @property
    def is_pattern(self) -> bool:
        return _MAGIC.search(self._path) is not None

    def _named(self) -> Iterator[StoredObject]:
        if self.is_pattern:
            matches = _pattern(self._path)
            folder = _MAGIC.split(self._path, maxsplit=1)[0].rpartition("/")[0]
            for one in self._client.below(folder):
                if matches.fullmatch(one.path) and _is_shown(one.path.removeprefix(folder).lstrip("/")):
                    yield one
            return
        folder = self._path.rstrip("/")
        objects = [
            one for one in self._client.in_folder(folder)[0] if one.path != folder and _is_shown(_name(one.path))
        ]
        if objects or self._path != folder or not folder:
            yield from objects
        else:
            try:
                yield self._client.head(folder)
            except FileNotFoundError:
                return

    def _found(self, stored: StoredObject) -> FoundObject:
        return FoundObject(f"{self._client.root}/{stored.path}", stored.size_bytes, stored.version)

    def _key(self, uri: str) -> str:
        return uri.removeprefix(f"{self._client.root}/")


class ObjectContent:
    """The bytes of one object, read in blocks. See ``FileContent``."""

    def __init__(self, client: ObjectClient, found: FoundObject, key: str, block_bytes: int) -> None:
        self.name, self.stored_bytes = found.uri, found.size_bytes
        self._client, self._found, self._key, self._block_bytes = client, found, key, block_bytes
        self._start, self._block = 0, memoryview(b"")

    def read(self, start: int, size_bytes: int) -> bytes:
        stop = min(start + size_bytes, self.stored_bytes)
        pieces = []
        while start < stop:
            if not self._start <= start < self._start + len(self._block):
                self._fetch(start, stop)
            piece = self._block[start - self._start : stop - self._start]
            pieces.append(piece)
            start += len(piece)
        return b"".join(pieces)

    def _fetch(self, start: int, stop: int) -> None:
        end = min(self.stored_bytes, max(stop, start + self._block_bytes), start + LINE_BLOCK_BYTES)
        with named_errors(self.name):
            self._block = self._client.get_range(self._key, start, end, self._found.version)
        self._start = start
        if not len(self._block):
            raise SourceError(f"{self.name}: the store gave no bytes from {start} on, and it has {self.stored_bytes}")

    def end_before(self, position: int) -> int | None:
        return self.stored_bytes if self.stored_bytes <= position else None

    def grow(self, stored_bytes: int) -> None:
        """Objects do not grow."""

    def another(self) -> ObjectContent:
        return ObjectContent(self._client, self._found, self._key, self._block_bytes)


class ObjectWatch:
    """Watches the objects that a URI names. They are listed every five seconds; see ``FileWatch``."""

    def __init__(self, files: ObjectFiles) -> None:
        self._objects = files
        self.files: dict[str, FileState] = {}
        self._listed: dict[str, FoundObject] = {}
        self._list_next_us: int | None = None

    @property
    def names_nothing(self) -> str | None:
        """None: a folder of an object store is there as long as it has objects, so none of them need be there."""
        return None

    def look(self, now_us: int, own: Callable[[str], bool], everything: bool = False) -> FileChanges:
        """The changes since the last call. Raises SourceError if another object has taken the place of one."""
        changes = FileChanges([], [], {})
        if not everything and self._list_next_us is not None and now_us < self._list_next_us:
            return changes
        found = {one.uri: one for one in self._objects.find()}
        self._list_next_us = now_us + _LIST_EVERY_US * max(1, len(found) // _NAMES_PER_LISTING)
        for uri in self._listed.keys() - found.keys():
            changes.removed[uri] = self.files.pop(uri)
        for uri, one in found.items():
            before = self._listed.get(uri)
            if before is not None and before != one and own(uri):
                raise SourceError(
                    f"{uri} was replaced by another object: a followed object must stay as it is; write what is new to "
                    "an object with another name"
                )
            if before is None:
                changes.added.append(uri)
            self.files[uri] = FileState((0, xxhash.xxh3_64_intdigest(uri.encode()) >> 1), one.size_bytes, 0)
        self._listed = found
        return changes

    def listed(self, uri: str) -> FoundObject:
        """The object as it was listed last."""
        return self._listed[uri]


def client_for(owner: str, uri: str) -> tuple[ObjectClient, str]:
    """A client for the bucket of a URI, and the path in it. Raises GraphError."""
    scheme, _, rest = uri.partition("://")
    bucket, _, path = rest.partition("/")
    try:
        return open_client(f"{scheme}://{bucket}", f"place for {owner}", PATIENCE_S), path
    except ValueError as problem:
        raise GraphError(f"{owner}: {problem}") from problem


def _is_shown(path: str) -> bool:
    """Whether no component of a relative path begins with ``.`` or ``_``."""
    return bool(path) and not any(part.startswith((".", "_")) for part in path.split("/"))


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _pattern(path: str) -> re.Pattern[str]:
    """A pattern of the shell: ``*`` and ``?`` stay within a folder, ``**`` as a whole component is any folders."""
    components = path.split("/")
    parts = [r"(?:[^/]+/)*" if one == "**" else _component(one) + "/" for one in components[:-1]]
    last = r"(?:[^/]+/)*[^/]+" if components[-1] == "**" else _component(components[-1])
    return re.compile("".join(parts) + last)


def _component(glob: str) -> str:
    translated = []
    for token in re.findall(r"\[[!^]?\]?[^]]*\]|.", glob):
        match token:
            case "*" | "?":
                translated.append("[^/]" + token.replace("?", ""))
            case _ if len(token) > 1:
                translated.append(re.sub(r"^\[!", "[^", token.replace("\\", r"\\")))
            case _:
                translated.append(re.escape(token))
    return "".join(translated)
