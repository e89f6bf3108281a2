"""The bytes of input files: of a local file, or of one that is compressed."""

from __future__ import annotations

import io
import os
from typing import Any, Literal, Protocol

import pyarrow as pa

from clonos_py.connectors.input_errors import ONLY_GROW, UNCHANGED, named_errors
from clonos_py.model.errors import SourceError

Compression = Literal["gzip", "zstd"]
COMPRESSIONS: dict[str, Compression] = {".gz": "gzip", ".zst": "zstd"}
"""By the last suffix of a file name: how lines in it are compressed."""
HEAD_BYTES = 1 << 16
"""How much of the start of a compressed file is kept, such as the header of CSV."""
_DECODED_BYTES = 1 << 20


class FileContent(Protocol):
    """The bytes of one file. Positions count them from 0. Errors are SourceErrors that name the file."""

    name: str

    @property
    def stored_bytes(self) -> int:
        """The size of the file as it is stored."""
        ...

    def read(self, start: int, size_bytes: int) -> bytes:
        """The bytes from ``start``, fewer if the file ends before. Raises SourceError if the file has shrunk."""
        ...

    def end_before(self, position: int) -> int | None:
        """Where the file ends, if that is not behind ``position``."""
        ...

    def grow(self, stored_bytes: int) -> None:
        """Sets the current size of the file."""
        ...

    def another(self) -> FileContent:
        """The same file, for reads at other places."""
        ...


class LocalContent:
    """A file of this machine. It is opened for each read, and nothing behind ``stored_bytes`` is read."""

    def __init__(self, path: str, stored_bytes: int, grows: bool = False) -> None:
        self.name, self.stored_bytes, self._grows = path, stored_bytes, grows

    def read(self, start: int, size_bytes: int) -> bytes:
        expected = max(0, min(size_bytes, self.stored_bytes - start))
        with named_errors(self.name), open(self.name, "rb", buffering=0) as file:
            content = os.pread(file.fileno(), expected, start)
        if len(content) < expected:
            raise shrunk(self.name, start + len(content), start + expected, self._grows)
        return content

    def end_before(self, position: int) -> int | None:
        return self.stored_bytes if self.stored_bytes <= position else None

    def grow(self, stored_bytes: int) -> None:
        self.stored_bytes = stored_bytes

    def another(self) -> LocalContent:
        return self


class CompressedContent:
    """The decompressed bytes of a file. They are decoded in order: reads that begin before the last one decode the file
    from its start."""

    def __init__(self, stored: FileContent, compression: Compression) -> None:
        self.name = stored.name
        self._stored = stored
        self._compression: Compression = compression
        self._end: int | None = None
        self._head = b""
        self._rewind()

    @property
    def stored_bytes(self) -> int:
        return self._stored.stored_bytes

    def read(self, start: int, size_bytes: int) -> bytes:
        if start < self._start and start + size_bytes <= len(self._head):
            return self._head[start : start + size_bytes]
        if start < self._start:
            self._rewind()
        self._decode_until(start, start + size_bytes)
        at = start - self._start
        return bytes(memoryview(self._decoded)[at : at + size_bytes])

    def end_before(self, position: int) -> int | None:
        if self._end is None:
            self._decode_until(position, position + 1)
        return self._end if self._end is not None and self._end <= position else None

    def grow(self, stored_bytes: int) -> None:
        self._stored.grow(stored_bytes)

    def another(self) -> CompressedContent:
        return CompressedContent(self._stored.another(), self._compression)

    def _rewind(self) -> None:
        source: Any = pa.PythonFile(ContentStream(self._stored), mode="r")
        self._stream: Any = pa.CompressedInputStream(source, self._compression)
        self._start, self._decoded = 0, bytearray()

    def _decode_until(self, needed: int, stop: int) -> None:
        """Decodes up to ``stop``, or to the end of the file. Keeps the bytes from ``needed`` on if more are decoded."""
        while self._start + len(self._decoded) < stop:
            with named_errors(self.name):
                more = self._stream.read(_DECODED_BYTES)
            if not more:
                self._end = self._start + len(self._decoded)
                return
            dropped = max(0, min(needed - self._start, len(self._decoded)))
            del self._decoded[:dropped]
            self._start += dropped
            self._decoded += more
            if not self._head:
                self._head = bytes(self._decoded[:HEAD_BYTES])


class ContentStream(io.RawIOBase):
    """The bytes of a file as a stream with random access."""

    def __init__(self, content: FileContent) -> None:
        self._content, self._at = content, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._content.stored_bytes}[whence]
        self._at = base + offset
        return self._at

    def read(self, size_bytes: int | None = -1, /) -> bytes:
        if size_bytes is None or size_bytes < 0:
            size_bytes = max(0, self._content.stored_bytes - self._at)
        found = self._content.read(self._at, size_bytes)
        self._at += len(found)
        return found


def shrunk(name: str, end: int, expected: int, grows: bool) -> SourceError:
    kept = ONLY_GROW if grows else UNCHANGED
    return SourceError(f"{name} has shrunk: it ends at byte {end}, {expected} was expected; {kept}")


def compression_of(path: str) -> Compression | None:
    """How a file of lines is compressed, by its name."""
    return COMPRESSIONS.get(os.path.splitext(path)[1].lower())


def suffix_of(compression: Compression) -> str:
    """The suffix of a file that is compressed so."""
    return next(suffix for suffix, named in COMPRESSIONS.items() if named == compression)


def decompressed(content: FileContent) -> FileContent:
    """The lines of a file, by its name."""
    compression = compression_of(content.name)
    return content if compression is None else CompressedContent(content, compression)
