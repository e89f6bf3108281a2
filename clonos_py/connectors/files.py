"""File sources and sinks for jobs, and a function that reads results back."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Literal, NamedTuple

import msgspec
import pyarrow as pa
from typing_extensions import TypeVar

from clonos_py.connectors.file_reader import FilePartition, FileReader
from clonos_py.connectors.file_watch import FileWatch
from clonos_py.connectors.file_writer import FileWriter
from clonos_py.connectors.followed_files import FollowedFiles
from clonos_py.connectors.line_formats import CsvLines, JsonLines, LineFormat, TextLines, csv_rows, input_schema
from clonos_py.connectors.line_reader import LinePartition
from clonos_py.connectors.local_paths import LocalPath, check_name, local_path
from clonos_py.connectors.malformed import CatchingSource, OnError, OnErrorWord, RequestedColumns
from clonos_py.connectors.partitioned_files import PartitionedFileWriter, check_partitions, files_below, values_in
from clonos_py.connectors.row_files import check_columns, check_format
from clonos_py.model.connectors import Delivery, SinkDefinition
from clonos_py.model.errors import GraphError, SinkError, SourceError, one_line
from clonos_py.model.operators import Sink, Source
from clonos_py.model.record import ArrowSchema, Record

R = TypeVar("R", bound=Record, default=Any)

_FORMATS = ("text", "jsonl", "csv", "parquet")
_NAMED = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".csv": "csv", ".parquet": "parquet"}


class InputFile(NamedTuple):
    """A file and its size when the job was submitted; bytes appended later are not read."""

    path: str
    size_bytes: int


class FileDeadLetter(Record):
    """A malformed record of a file: its first line, counted from 1, its byte offset, its content without the line end,
    and the reason."""

    path: str
    line: int
    offset: int
    value: bytes
    reason: str


class FileSource(CatchingSource[R]):
    """Reads files: ``path`` is a file, a folder or a pattern such as ``logs/*.jsonl``. A relative path refers to the
    folder in which the job is submitted.

    ``schema`` is the class of the rows or their columns; without it each line is a row with the column ``line``.
    ``format`` is text, jsonl, csv (with a header line) or parquet; it is needed only if the file name does not show it.
    Each file is a partition. The sorted list of files and their sizes are fixed when the job is submitted; the files
    must not change until the job has ended. The next run reads files that were added, if their names sort after the
    others, and lines that were added to files. Any other change of the list is an error on resuming, and so is a file
    of which the part that was read has changed.

    With ``follow`` the source never ends: files may grow and be added while the job runs, and a line is read once it
    has its line end. What was read of a file must not change, and files must stay where they are until a checkpoint
    covers their rows. A file that is removed after that has ended, and no other file may take its name. Files whose
    names begin with ``.`` or ``_`` are not read: write a file under such a name, then rename it. A file that has been
    read may get such a name, or be moved to another folder. Files that are new or grew a short time ago are checked for
    changes every 0.1 s, and so are 200 of the others in turn: of 16,000 quiet files each one every 8 s. If the job uses
    event time, set ``job.source(..., idle="5s")``; otherwise a file that does not grow holds the watermark back.
    Parquet files do not grow and cannot be followed.

    ``on_error`` decides what happens to a record that does not fit the format and schema. "fail" ends the job. "skip"
    drops the record and counts it as ``rows_skipped``. "dead-letter", or ``catch()``, counts it as ``dead_letters`` and
    emits it as a ``FileDeadLetter`` in a second stream. With "skip" and "dead-letter" all columns of the schema are
    parsed, even those that the job does not read.

    Which records a file has depends on its bytes alone. Lines of text and JSON end with LF; each line of JSON is one
    object, or blank. CSV is read as Python's ``csv`` reads it: a record ends with LF, CR or CRLF outside quotes, and a
    quote inside an unquoted field is text. But a record of several lines that lacks a quote, since the quoted field
    does not end or is followed by other text, is malformed and ends with its first line. A byte order mark at the start
    of a CSV or JSON file is skipped.
    """

    letter = FileDeadLetter

    def __init__(
        self,
        path: LocalPath,
        schema: type[R] | ArrowSchema | None = None,
        format: str | None = None,
        *,
        follow: bool = False,
        on_error: OnErrorWord = "fail",
    ) -> None:
        self._path = local_path("FileSource", path)
        self._format, self._follow = _format(os.fspath(path), schema, format), follow
        if follow and self._format == "parquet":
            raise GraphError("FileSource: Parquet files do not grow; with follow=True choose text, jsonl or csv")
        columns = input_schema("FileSource", self._format, schema, others="jsonl, csv or parquet")
        self.declare(columns, schema if isinstance(schema, type) else None, on_error)

    def declare(self, schema: pa.Schema, record: type[Record] | None, on_error: str) -> None:
        super().declare(schema, record, on_error)
        if self._format == "parquet" and self.on_error is not OnError.FAIL:
            raise GraphError(
                "FileSource: a Parquet file has no malformed records, it is readable as a whole or not: omit on_error "
                "and catch()"
            )

    @cached_property
    def files(self) -> tuple[InputFile, ...]:
        """The files to read. Raises SourceError if there are none."""
        matches = _matches(self._path)
        found = sorted(path for path in matches if os.path.isfile(path))
        if not found:
            raise SourceError(f"{self._path}: {_none_found(self._path, matches)}")
        for path in found:
            check_name(path)
        try:
            return tuple(InputFile(path, os.path.getsize(path)) for path in found)
        except OSError as error:
            raise SourceError(f"{self._path}: cannot be read ({error})") from error

    def __getstate__(self) -> dict[str, Any]:
        """Fixes the list of files before the job is submitted, so that all processes read the same list."""
        if not self._follow:
            _ = self.files
        return self.__dict__

    def resolve(self) -> None:
        """Raises SourceError if the folder of followed files does not exist, or if the path is no file. Files may be
        added later."""
        if (
            self._follow
            and os.path.exists(self._path)
            and not (os.path.isfile(self._path) or os.path.isdir(self._path))
        ):
            raise SourceError(f"{self._path}: {_none_found(self._path, [self._path])}")
        folder = self._path if os.path.isdir(self._path) else os.path.dirname(self._path)
        if self._follow and not glob.has_magic(folder) and not os.path.isdir(folder):
            raise SourceError(f"{folder}: no such folder; FileSource follows files in a folder that exists")

    def reader(self, requested: RequestedColumns, read_rows: int | None) -> Source:
        if self._follow:
            return FollowedFiles(
                FileWatch(self._path), lambda path, size: self._lines(path, size, requested, read_rows), requested.count
            )
        return FileReader(
            len(self.files), lambda number: self._partition(self.files[number], requested, read_rows), requested.count
        )

    def _partition(self, file: InputFile, requested: RequestedColumns, read_rows: int | None) -> FilePartition:
        if self._format == "parquet":
            from clonos_py.connectors.parquet_reader import ParquetPartition

            return ParquetPartition(file.path, requested.parsed, read_rows)
        return self._lines(file.path, file.size_bytes, requested, read_rows)

    def _lines(self, path: str, size_bytes: int, requested: RequestedColumns, read_rows: int | None) -> LinePartition:
        return LinePartition(path, size_bytes, self._line_format(requested.parsed), requested, read_rows, self._follow)

    def _line_format(self, schema: pa.Schema) -> LineFormat:
        match self._format:
            case "text":
                return TextLines(schema)
            case "jsonl":
                return JsonLines(schema)
            case _:
                return CsvLines(schema)


class FileSink(SinkDefinition):
    """Writes files into ``folder``, exactly once.

    With the delivery ``transactional`` files become visible when the checkpoint that covers them is complete. With
    ``causal`` rows are visible at once, in files that grow. The determinants that they depend on are written to the
    folder first, so that a recovery repeats exactly these rows (D16). This needs the full sharing depth.

    ``format`` is jsonl, csv or, if transactional, parquet. With ``partition_by``, only if transactional, files lie in
    folders by the values of these text columns, ``dt=2026-01-31/hm=09%3A30``, and leave the columns out. Raises
    GraphError for anything else, and for columns that the format cannot hold. JSON cannot express NaN and infinities:
    in nullable columns they become null, in other columns they fail the job; csv and parquet keep them.
    """

    def __init__(
        self,
        folder: LocalPath,
        format: str = "jsonl",
        delivery: Literal["transactional", "causal"] = "transactional",
        partition_by: str | Sequence[str] = (),
    ) -> None:
        check_format("FileSink", format)
        if delivery not in (Delivery.TRANSACTIONAL, Delivery.CAUSAL):
            raise GraphError(f"FileSink: unknown delivery {delivery!r}; choose one of transactional, causal")
        self.delivery = Delivery(delivery)
        if self.delivery is Delivery.CAUSAL:
            from clonos_py.connectors.causal_files import check_growing

            check_growing("FileSink", format)
            if partition_by:
                raise GraphError("FileSink: with delivery='causal' files grow in one folder; omit partition_by")
        self._folder = local_path("FileSink", folder)
        self._format = format
        named = (partition_by,) if isinstance(partition_by, str) else partition_by
        if not isinstance(named, Sequence) or not all(isinstance(name, str) for name in named):
            raise GraphError(f"FileSink: partition_by={partition_by!r}: it takes the name of a column, or several")
        self._partition_by = tuple(named)

    def create(self, schema: pa.Schema) -> Sink:
        check_columns("FileSink", self._format, schema)
        if self._partition_by:
            check_partitions("FileSink", self._partition_by, schema)
            return PartitionedFileWriter(self._folder, self._format, schema, self._partition_by)
        if self.delivery is Delivery.CAUSAL:
            from clonos_py.connectors.causal_files import CausalFileWriter

            return CausalFileWriter(self._folder, self._format, schema)
        return FileWriter(self._folder, self._format, schema)

    def on_trial(self, folder: str) -> FileSink:
        return FileSink(folder, self._format, partition_by=self._partition_by)


def read_results(folder: LocalPath) -> list[dict[str, Any]]:
    """All visible rows in a folder of file sinks, ordered by file name, with numbers in names compared by value. So the
    rows of a task are in the order in which it wrote them. Values from CSV are text. The values in folder names
    (``partition_by``) become the last columns.

    Raises GraphError for what is no local path, SinkError if there is no such folder or a file cannot be read."""
    folder = local_path("read_results", folder)
    if not os.path.isdir(folder):
        found = "is no folder" if os.path.exists(folder) else "does not exist"
        raise SinkError(f"{folder} {found}: give the folder that a file sink has written to")
    with _read_errors(folder):
        paths = sorted(files_below(folder), key=_by_number)
    return [row | values_in(path, folder) for path in paths for row in _rows_of(path)]


def _by_number(path: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdecimal() else (0, part) for part in re.split(r"(\d+)", path)]


def _rows_of(path: str) -> list[dict[str, Any]]:
    """The rows of a file. Raises SinkError if no file sink has written it, or it is damaged."""
    with _read_errors(path):
        return list(_read_rows(path))


@contextmanager
def _read_errors(path: str) -> Iterator[None]:
    """Turns errors of reading into SinkErrors. A SourceError names the file and the remedy itself."""
    try:
        yield
    except OSError as error:
        raise SinkError(f"{path}: cannot be read ({error.strerror}): allow it, or copy the folder") from error
    except (pa.ArrowException, msgspec.DecodeError) as error:
        reason = one_line(error).removeprefix(f"{path}: ")
        raise SinkError(
            f"{path} is damaged or not of a file sink ({reason}): restore it from a copy, or move it away"
        ) from error


def _read_rows(path: str) -> Iterator[dict[str, Any]]:
    match os.path.splitext(path)[1]:
        case ".jsonl":
            with open(path, "rb") as lines:
                yield from (msgspec.json.decode(line) for line in lines if line.endswith(b"\n"))
        case ".csv":
            with open(path, "rb") as text:
                yield from csv_rows(text.read(), path)
        case ".parquet":
            import pyarrow.parquet as pq

            yield from pq.read_table(path, use_threads=False).to_pylist()
        case _ if os.path.isfile(path):
            raise SinkError(f"{path} is not the output folder of a file sink: give the folder it writes to")


def _matches(path: str) -> list[str]:
    if os.path.isdir(path):
        return [os.path.join(path, name) for name in os.listdir(path) if not name.startswith((".", "_"))]
    return [path] if os.path.exists(path) else glob.glob(path, recursive=True)


def _none_found(path: str, matches: Sequence[str]) -> str:
    """Why there is no file to read."""
    if os.path.isdir(path):
        return (
            "the folder has no files to read; FileSource skips names that begin with . or _, and for files in its "
            "folders it takes a pattern like **/*.csv"
        )
    if matches:
        return "not a regular file, so it cannot be read again; write its content to a file, or use a SocketSource"
    return "no such file; FileSource takes a file, a folder or a pattern like *.csv"


def _format(path: str, schema: object, given: str | None) -> str:
    """The given format, or the one that the file name shows. Raises GraphError."""
    if isinstance(schema, str):
        raise GraphError(
            f"FileSource: the rows come before the format: write FileSource(path, Row, {schema!r}), or "
            f"FileSource(path, format={schema!r})"
        )
    if given is not None:
        if not isinstance(given, str) or given not in _FORMATS:
            raise GraphError(f"FileSource: unknown format {given!r}; choose one of {', '.join(_FORMATS)}")
        return given
    if schema is None:
        return "text"
    from_name = _NAMED.get(os.path.splitext(path)[1].lower())
    if from_name is None:
        raise GraphError(
            f"FileSource: the name {path!r} does not show the format: give format='jsonl', 'csv' or 'parquet'"
        )
    return from_name
