"""Writing rows to one file: JSON lines, CSV or Parquet.

Small batches are gathered, since encoding has a cost per call. A file is durable once ``finish`` returned. What JSON
cannot say is null there: NaN and infinities. Errors of the disk are SinkErrors with path and remedy.
"""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Protocol

import polars as pl
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from clonos_py.model.errors import GraphError, SinkError

FORMATS = ("jsonl", "csv", "parquet")
GATHERED_ROWS = 65_536

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_READ_ONLY = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})


class Encoder(Protocol):
    """Turns rows into bytes of a file."""

    def encode(self, rows: pa.Table) -> None: ...

    def end(self) -> None: ...


class RowFile:
    """A new file being written."""

    def __init__(self, path: str, file_format: str, schema: pa.Schema) -> None:
        self._path = path
        self._schema = schema
        self._gathered: list[pa.RecordBatch] = []
        self._gathered_rows = 0
        with named_errors(path):
            self._file = open(path, "xb")  # noqa: SIM115, closed by finish or discard
            self._encoder = _encoder(self._file, file_format, schema)

    def write(self, rows: pa.RecordBatch) -> None:
        self._gathered.append(rows)
        self._gathered_rows += rows.num_rows
        if self._gathered_rows >= GATHERED_ROWS:
            self._flush()

    def finish(self) -> None:
        """Writes what is left, flushes it to the disk and closes the file."""
        self._flush()
        with named_errors(self._path):
            self._encoder.end()
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()

    def discard(self) -> None:
        """Deletes the file; what is not written yet is forgotten."""
        with named_errors(self._path):
            os.unlink(self._path)
            try:
                self._file.close()
            except OSError:
                return  # the rest of the buffer did not fit: it is not wanted

    def _flush(self) -> None:
        with named_errors(self._path):
            self._encoder.encode(pa.Table.from_batches(self._gathered, schema=self._schema))
        self._gathered, self._gathered_rows = [], 0


class _JsonLines:
    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def encode(self, rows: pa.Table) -> None:
        lines = io.BytesIO()  # an error of the disk would lose its number on the way through Polars
        pl.DataFrame(pl.from_arrow(rows)).write_ndjson(lines)
        self._file.write(lines.getbuffer())

    def end(self) -> None:
        """Each line ends by itself."""


class _Csv:
    def __init__(self, file: IO[bytes], schema: pa.Schema) -> None:
        self._writer = pa_csv.CSVWriter(file, schema)

    def encode(self, rows: pa.Table) -> None:
        self._writer.write_table(rows)

    def end(self) -> None:
        self._writer.close()


class _Parquet:
    def __init__(self, file: IO[bytes], schema: pa.Schema) -> None:
        self._writer = pq.ParquetWriter(file, schema, write_page_checksum=True)

    def encode(self, rows: pa.Table) -> None:
        if rows.num_rows:
            self._writer.write_table(rows)

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
    """Raises GraphError for a format that is not known."""
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


@contextmanager
def named_errors(path: str) -> Iterator[None]:
    """Turns errors of the operating system and of the encoders into SinkErrors."""
    try:
        yield
    except (OSError, pa.ArrowException, pl.exceptions.PolarsError) as error:
        code = getattr(error, "errno", None)
        if code in _FULL:
            raise SinkError(f"{path}: the disk is full; free space and resume from the last checkpoint") from error
        if code in _READ_ONLY:
            raise SinkError(f"{path}: cannot be written ({error}); allow it or choose another folder") from error
        raise SinkError(f"{path}: cannot be written ({error})") from error
