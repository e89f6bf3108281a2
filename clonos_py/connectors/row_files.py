"""Writes rows to one file: JSON lines, CSV or Parquet.

Small batches are gathered, since each call of an encoder has a cost. A file is durable once ``finish`` has returned.
JSON cannot express NaN and infinities: in a nullable column they become null, in another they are an error. CSV and
Parquet keep them. Disk errors are SinkErrors with path and remedy.
"""

from __future__ import annotations

import errno
import io
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import xxhash

from clonos_py.columns.casting import with_null_structs
from clonos_py.connectors.file_content import Compression
from clonos_py.connectors.ndjson import encoded
from clonos_py.connectors.written_times import written_schema, written_times
from clonos_py.model.errors import GraphError, SinkError

FORMATS = ("jsonl", "csv", "parquet")
GATHERED_ROWS = 65_536
_READ_BYTES = 1 << 20

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_READ_ONLY = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})


class Encoder(Protocol):
    """Converts rows to bytes of a file."""

    def encode(self, rows: pa.Table) -> None: ...

    def end(self) -> None: ...


class _NewFile(io.RawIOBase):
    """A new file, which is only appended to. ``park`` gives its descriptor back until it is needed again."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file: io.FileIO | None = io.FileIO(path, "x")
        self._at = 0

    def park(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def write(self, content: Any, /) -> int:
        count = self._opened().write(content)
        self._at += count
        return count

    def fileno(self) -> int:
        return self._opened().fileno()

    def close(self) -> None:
        self.park()
        super().close()

    def _opened(self) -> io.FileIO:
        if self._file is None:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
            self._file = io.FileIO(descriptor, "a")
        return self._file


class OutputFile(Protocol):
    """A new file of some medium. Encoders write to it and never seek back."""

    size_bytes: int
    digest: xxhash.xxh3_64

    def write(self, content: Any, /) -> int: ...

    def park(self) -> None:
        """Gives the descriptor back until bytes are written again."""
        ...

    def settle(self) -> None:
        """Makes the file durable and closes it."""
        ...

    def discard(self) -> None:
        """Deletes the file."""
        ...

    def abandon(self) -> None:
        """Closes what is left of a file that was discarded."""
        ...


class _DigestedFile(io.BufferedWriter):
    """Computes the digest while writing."""

    def __init__(self, path: str) -> None:
        self._path, self._new = path, _NewFile(path)
        super().__init__(self._new)
        self.size_bytes = 0
        self.digest = xxhash.xxh3_64()

    def write(self, content: Any, /) -> int:
        self.digest.update(content)
        self.size_bytes += memoryview(content).nbytes
        return super().write(content)

    def park(self) -> None:
        self._new.park()

    def settle(self) -> None:
        self.flush()
        os.fsync(self.fileno())
        self.close()

    def discard(self) -> None:
        os.unlink(self._path)

    def abandon(self) -> None:
        self.close()


class RowFile:
    """A new file that is being written, with compressed lines if ``compression`` names how. ``file``: that of another
    medium than a local disk."""

    def __init__(
        self,
        path: str,
        file_format: str,
        schema: pa.Schema,
        compression: Compression | None = None,
        file: OutputFile | None = None,
    ) -> None:
        self._path = path
        self._schema = schema
        self._gathered: list[pa.RecordBatch] = []
        self._gathered_rows = 0
        with named_errors(path):
            self._file: OutputFile = _DigestedFile(path) if file is None else file
            target: Any = self._file if compression is None else _Compressed(self._file, compression)
            self._compressed = target if compression is not None else None
            self._encoder = _encoder(target, file_format, schema)

    def write(self, rows: pa.RecordBatch) -> None:
        self._gathered.append(rows)
        self._gathered_rows += rows.num_rows
        if self._gathered_rows >= GATHERED_ROWS:
            self._flush()

    @property
    def size_bytes(self) -> int:
        """How much of the file is written."""
        return self._file.size_bytes

    def park(self) -> None:
        """Gives the descriptor of the file back. It is opened again when that is needed."""
        with named_errors(self._path):
            self._file.park()

    def finish(self) -> tuple[int, int]:
        """Writes the remaining rows, flushes to disk and closes the file; returns its size in bytes and its digest."""
        self._flush()
        with named_errors(self._path):
            self._encoder.end()
            if self._compressed is not None:
                self._compressed.end()
            self._file.settle()
        return self._file.size_bytes, self._file.digest.intdigest()

    def discard(self) -> None:
        """Deletes the file and drops rows not yet written."""
        with named_errors(self._path):
            self._file.discard()
            with suppress(OSError, pa.ArrowException):  # errors no longer matter
                self._encoder.end()  # otherwise Arrow does so later, and fails since the file is closed
            with suppress(OSError):
                self._file.abandon()

    def _flush(self) -> None:
        with named_errors(self._path):
            self._encoder.encode(pa.Table.from_batches(self._gathered, schema=self._schema))
        self._gathered, self._gathered_rows = [], 0


class _Compressed(io.RawIOBase):
    """Compresses what is written to a file, which stays open."""

    def __init__(self, file: OutputFile, compression: Compression) -> None:
        self._stream = pa.CompressedOutputStream(pa.PythonFile(_KeptOpen(file), mode="w"), compression)

    def writable(self) -> bool:
        return True

    def write(self, content: Any, /) -> int:
        return int(self._stream.write(content))

    def end(self) -> None:
        self._stream.close()


class _KeptOpen(io.RawIOBase):
    """Passes bytes on to a file, and leaves that open when it is closed."""

    def __init__(self, file: OutputFile) -> None:
        self._file = file

    def writable(self) -> bool:
        return True

    def write(self, content: Any, /) -> int:
        return self._file.write(content)


class _JsonLines:
    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def encode(self, rows: pa.Table) -> None:
        self._file.write(json_lines(rows))

    def end(self) -> None:
        """Does nothing: each line ends on its own."""


def json_lines(rows: pa.Table | pa.RecordBatch) -> memoryview:
    """The rows as lines of JSON. Raises SinkError for NaN and infinities in columns that are not nullable."""
    for field in rows.schema:
        if (place := _inexpressible(rows.column(field.name), field, field.name)) is not None:
            raise SinkError(
                f"column {place!r} has a NaN or an infinity, which JSON cannot express: declare it '| None' to have "
                "null there, or write csv or parquet"
            )
    return encoded(rows)


def _inexpressible(column: Any, field: pa.Field[Any], place: str) -> str | None:
    """The path of a field, at any depth, with a value that JSON cannot express and that cannot be null."""
    kind: Any = field.type
    if pa.types.is_floating(kind):
        return place if not field.nullable and not pc.all(pc.is_finite(column), min_count=0).as_py() else None
    if not _has_floats(kind):
        return None
    whole: Any = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_struct(kind):
        inner = zip(whole.flatten(), kind, strict=True)
        found = (_inexpressible(values, one, f"{place}.{one.name}") for values, one in inner)
        return next((where for where in found if where is not None), None)
    return _inexpressible(whole.flatten(), kind.value_field, f"{place}[]")


def _has_floats(kind: Any) -> bool:
    if pa.types.is_struct(kind):
        return any(_has_floats(field.type) for field in kind)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _has_floats(kind.value_type)
    return bool(pa.types.is_floating(kind))


class _Csv:
    def __init__(self, file: IO[bytes], schema: pa.Schema) -> None:
        self._writer = pa_csv.CSVWriter(file, written_schema(schema))

    def encode(self, rows: pa.Table) -> None:
        self._writer.write_table(written_times(rows, numbers_exact=True))

    def end(self) -> None:
        self._writer.close()


class _Parquet:
    def __init__(self, file: IO[bytes], schema: pa.Schema) -> None:
        import pyarrow.parquet as pq  # only here: it takes longer to load than the rest of the command line

        self._schema = pa.schema([field.with_type(with_null_structs(field.type, field.nullable)) for field in schema])
        self._writer = pq.ParquetWriter(file, self._schema, write_page_checksum=True)

    def encode(self, rows: pa.Table) -> None:
        if rows.num_rows:
            self._writer.write_table(rows if rows.schema == self._schema else rows.cast(self._schema))

    def end(self) -> None:
        self._writer.close()


def _encoder(file: IO[bytes], file_format: str, schema: pa.Schema) -> Encoder:
    match file_format:
        case "jsonl":
            return _JsonLines(file)
        case "csv":
            return _Csv(file, schema)
        case _:
            return _Parquet(file, schema)


def check_format(owner: str, file_format: str) -> None:
    """Raises GraphError for an unknown format."""
    if file_format not in FORMATS:
        raise GraphError(f"{owner}: unknown format {file_format!r}; choose one of {', '.join(FORMATS)}")


def check_columns(owner: str, file_format: str, schema: pa.Schema) -> None:
    """Raises GraphError for a column that the format cannot hold."""
    for field in schema:
        if file_format != "parquet" and _has_binary(field.type):
            raise GraphError(f"{owner}: {file_format} cannot hold column {field.name!r} ({field.type}); write parquet")
        if file_format == "csv" and pa.types.is_nested(field.type):
            raise GraphError(f"{owner}: csv cannot hold column {field.name!r} ({field.type}); write jsonl or parquet")


def _has_binary(type_: pa.DataType) -> bool:
    if pa.types.is_nested(type_):
        return any(_has_binary(type_.field(i).type) for i in range(type_.num_fields))
    return pa.types.is_binary(type_) or pa.types.is_large_binary(type_) or pa.types.is_fixed_size_binary(type_)


def open_regular(path: str) -> io.FileIO:
    """Opens a file written here before, for reading. Never blocks, and does not follow links. Raises SinkError if it is
    not a regular file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise SinkError(f"{path} is not a regular file: restore it from a copy, or start over with --fresh")
    return io.FileIO(descriptor, "r")


def digest_of(path: str) -> tuple[int, int]:
    """The size in bytes and the digest of a file, as ``RowFile.finish`` returns them."""
    digest, size_bytes = xxhash.xxh3_64(), 0
    with open_regular(path) as file:
        while content := file.read(_READ_BYTES):
            digest.update(content)
            size_bytes += len(content)
    return size_bytes, digest.intdigest()


@contextmanager
def named_errors(path: str) -> Iterator[None]:
    """Turns errors of the operating system and of the encoders into SinkErrors."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        code = getattr(error, "errno", None)
        if code in _FULL:
            raise SinkError(f"{path}: the disk is full; free space and run the job again") from error
        if code in _READ_ONLY:
            raise SinkError(f"{path}: cannot be written ({error}); allow it or choose another folder") from error
        raise SinkError(f"{path}: cannot be written ({error})") from error
