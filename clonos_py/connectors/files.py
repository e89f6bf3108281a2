"""File sources and sinks for jobs."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import pyarrow as pa
from typing_extensions import TypeVar

from clonos_py.connectors.file_content import (
    COMPRESSIONS,
    Compression,
    FileContent,
    LocalContent,
    compression_of,
    decompressed,
)
from clonos_py.connectors.file_reader import FileReader
from clonos_py.connectors.file_watch import FileWatch
from clonos_py.connectors.file_writer import FileWriter
from clonos_py.connectors.followed_files import FollowedFile, FollowedFiles
from clonos_py.connectors.line_formats import CsvLines, JsonLines, LineFormat, TextLines, input_schema
from clonos_py.connectors.line_reader import LinePartition
from clonos_py.connectors.local_paths import LocalPath, check_name, path_or_objects
from clonos_py.connectors.malformed import CatchingSource, OnError, OnErrorWord, RequestedColumns
from clonos_py.connectors.partitioned_files import PartitionedFileWriter, check_partitions
from clonos_py.connectors.row_files import check_columns, check_format
from clonos_py.model.connectors import Delivery, SinkDefinition
from clonos_py.model.errors import GraphError, SourceError
from clonos_py.model.object_uris import names_objects
from clonos_py.model.operators import Sink, Source
from clonos_py.model.record import ArrowSchema, Record

if TYPE_CHECKING:
    from clonos_py.connectors.object_files import ObjectFiles

R = TypeVar("R", bound=Record, default=Any)

_FORMATS = ("text", "jsonl", "csv", "parquet")
_NO_OBJECT = "no such object; FileSource takes an object, a folder or a pattern like *.csv"
_NAMED = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".csv": "csv", ".parquet": "parquet"}


class InputFile(NamedTuple):
    """A file and its size when the job was submitted; bytes appended later are not read. ``version``: of an object,
    what changes if another one takes its place."""

    path: str
    size_bytes: int
    version: str = ""


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
        self._path = path_or_objects("FileSource", path)
        self._remote = names_objects(self._path)
        self._format, self._follow = _format(os.fspath(path), schema, format), follow
        if self._remote:
            self._objects()
        elif follow and self._format == "parquet":
            raise GraphError("FileSource: Parquet files do not grow; with follow=True choose text, jsonl or csv")
        elif follow and compression_of(self._path) is not None:
            raise GraphError("FileSource: compressed files do not grow; with follow=True read files that are not")
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
        if self._remote:
            objects = self._objects().find()
            if not objects:
                raise SourceError(f"{self._path}: {_NO_OBJECT}")
            return tuple(InputFile(*one) for one in objects)
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
        if self._remote:
            if self._follow:
                self._objects().find()
            return
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
        if self._remote:
            return self._object_reader(self._objects(), requested, read_rows)
        if self._follow:
            return FollowedFiles(
                FileWatch(self._path),
                lambda path, size: self._partition(LocalContent(path, size, grows=True), requested, read_rows),
                requested.count,
            )
        return FileReader(
            len(self.files),
            lambda number: self._partition(LocalContent(*self.files[number][:2]), requested, read_rows),
            requested.count,
        )

    def _object_reader(self, objects: ObjectFiles, requested: RequestedColumns, read_rows: int | None) -> Source:
        from clonos_py.connectors.object_files import LINE_BLOCK_BYTES, PARQUET_BLOCK_BYTES, FoundObject, ObjectWatch

        block_bytes = PARQUET_BLOCK_BYTES if self._format == "parquet" else LINE_BLOCK_BYTES

        def partition(found: FoundObject) -> FollowedFile:
            return self._partition(objects.content(found, block_bytes), requested, read_rows)

        if not self._follow:
            files = [FoundObject(*file) for file in self.files]
            return FileReader(len(files), lambda number: partition(files[number]), requested.count)
        watch = ObjectWatch(objects)
        return FollowedFiles(watch, lambda uri, size: partition(watch.listed(uri)), requested.count)

    def _objects(self) -> ObjectFiles:
        return object_files("FileSource", self._path)

    def _partition(self, content: FileContent, requested: RequestedColumns, read_rows: int | None) -> FollowedFile:
        if self._format == "parquet":
            from clonos_py.connectors.parquet_reader import ParquetPartition

            return ParquetPartition(
                content.name, requested.parsed, read_rows, None if isinstance(content, LocalContent) else content
            )
        line_format = self._line_format(requested.parsed)
        grows = self._follow and not self._remote
        return LinePartition(decompressed(content), line_format, requested, read_rows, grows)

    def _line_format(self, schema: pa.Schema) -> LineFormat:
        match self._format:
            case "text":
                return TextLines(schema)
            case "jsonl":
                return JsonLines(schema)
            case _:
                return CsvLines(schema)


class FileSink(SinkDefinition):
    """Writes files into ``folder``, exactly once: a path, or a URI such as ``s3://bucket/path``.

    With the delivery ``transactional`` files become visible when the checkpoint that covers them is complete. With
    ``causal`` rows are visible at once, in files that grow. The determinants that they depend on are written to the
    folder first, so that a recovery repeats exactly these rows (D16). This needs the full sharing depth.

    ``format`` is jsonl, csv or, if transactional, parquet. With ``partition_by``, only if transactional, files lie in
    folders by the values of these text columns, ``dt=2026-01-31/hm=09%3A30``, and leave the columns out. Raises
    GraphError for anything else, and for columns that the format cannot hold. JSON cannot express NaN and infinities:
    in nullable columns they become null, in other columns they fail the job; csv and parquet keep them.

    ``compression``, only of jsonl and csv, is gzip or zstd. In an object store rows are uploaded as they come, and an
    object appears as a whole when its checkpoint is complete. There each task writes one object for each checkpoint,
    and begins another one when it has more than ``roll``, such as "128MB". Parts that were uploaded by a process that
    died stay in the store until a rule of the bucket deletes them.
    """

    def __init__(
        self,
        folder: LocalPath,
        format: str = "jsonl",
        delivery: Literal["transactional", "causal"] = "transactional",
        partition_by: str | Sequence[str] = (),
        *,
        compression: Literal["gzip", "zstd"] | None = None,
        roll: str | None = None,
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
        self._folder = path_or_objects("FileSink", folder)
        self._format = format
        self._compression: Compression | None = compression
        self._roll_bytes = _roll_bytes(roll)
        self._check_options()
        named = (partition_by,) if isinstance(partition_by, str) else partition_by
        if not isinstance(named, Sequence) or not all(isinstance(name, str) for name in named):
            raise GraphError(f"FileSink: partition_by={partition_by!r}: it takes the name of a column, or several")
        self._partition_by = tuple(named)

    def _check_options(self) -> None:
        """Raises GraphError for options that do not go together."""
        in_objects = names_objects(self._folder)
        if self._compression not in (None, *COMPRESSIONS.values()):
            raise GraphError(f"FileSink: unknown compression {self._compression!r}; choose one of gzip, zstd")
        if self._compression is not None and self._format == "parquet":
            raise GraphError("FileSink: Parquet files are compressed by themselves; omit compression")
        if self._compression is not None and self.delivery is Delivery.CAUSAL:
            raise GraphError("FileSink: with delivery='causal' files grow, and compressed ones cannot")
        if in_objects and self.delivery is Delivery.CAUSAL:
            raise GraphError("FileSink: with delivery='causal' files grow, and objects cannot; omit delivery")
        if self._roll_bytes is not None and not in_objects:
            raise GraphError("FileSink: roll is for object stores; in a folder each checkpoint closes the files")
        if in_objects:
            object_files("FileSink", self._folder)

    def create(self, schema: pa.Schema) -> Sink:
        check_columns("FileSink", self._format, schema)
        if self._partition_by:
            check_partitions("FileSink", self._partition_by, schema)
        if names_objects(self._folder):
            from clonos_py.connectors.object_writer import ObjectWriter

            options = self._partition_by, self._compression, self._roll_bytes
            return ObjectWriter(self._folder, self._format, schema, *options)
        if self._partition_by:
            return PartitionedFileWriter(self._folder, self._format, schema, self._partition_by, self._compression)
        if self.delivery is Delivery.CAUSAL:
            from clonos_py.connectors.causal_files import CausalFileWriter

            return CausalFileWriter(self._folder, self._format, schema)
        return FileWriter(self._folder, self._format, schema, self._compression)

    def on_trial(self, folder: str) -> FileSink:
        return FileSink(folder, self._format, partition_by=self._partition_by, compression=self._compression)


def _roll_bytes(roll: str | None) -> int | None:
    """Raises GraphError for what is no size."""
    from clonos_py.model.sizes import bytes_in

    size_bytes = bytes_in(roll)
    if roll is not None and not size_bytes:
        raise GraphError(f"FileSink: roll={roll!r} is no size: write a number and a unit, such as '128MB'")
    return size_bytes


def object_files(owner: str, uri: str) -> ObjectFiles:
    """The objects that a URI names. Raises GraphError, also if the library for object stores is missing."""
    try:
        from clonos_py.connectors.object_files import ObjectFiles
    except ModuleNotFoundError as missing:
        raise GraphError(
            f"{owner}: files in an object store need obstore: pip install 'clonos-py[object-store]' ({uri})"
        ) from missing
    return ObjectFiles(owner, uri)


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
    plain = path if compression_of(path) is None else os.path.splitext(path)[0]
    from_name = _NAMED.get(os.path.splitext(plain)[1].lower())
    if from_name is None:
        raise GraphError(
            f"FileSource: the name {path!r} does not show the format: give format='jsonl', 'csv' or 'parquet'"
        )
    return from_name
