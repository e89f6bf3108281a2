"""Lines of text, JSON or CSV to columns, a block of whole records at a time, and which record of a block is malformed.

Parsers are Arrow's, single-threaded; what they let pass is checked here: text that is not UTF-8, and a missing value
of a column that is not nullable.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json

from clonos_py.model.errors import SourceError

NEWLINE, RETURN, QUOTE = 10, 13, 34

Positions = npt.NDArray[np.int64]


class LineFormat(Protocol):
    """How one file is read. ``begin`` is called once, before anything else."""

    def begin(self, head: bytes, path: str) -> int:
        """Takes the first lines of the file; the position of the first record."""
        ...

    def ends(self, content: bytes) -> Positions:
        """The position behind each complete record of ``content``, which begins with a record."""
        ...

    def parse(self, content: bytes) -> pa.RecordBatch:
        """Whole records as columns. Raises ValueError (pa.ArrowInvalid is one) if one is malformed."""
        ...


def line_ends(content: bytes) -> Positions:
    return np.flatnonzero(np.frombuffer(content, np.uint8) == NEWLINE) + 1


def first_refused(count: int, parse: Callable[[int, int], object]) -> tuple[int, str]:
    """Index and complaint of the first of ``count`` records that does not parse, found by halving. ``parse`` takes
    the records [start, stop) and raises ValueError; it refuses all of them together."""
    good, bad, complaint = 0, count, ""
    while bad - good > 1:
        middle = (good + bad) // 2
        try:
            parse(good, middle)
            good = middle
        except ValueError as error:
            bad, complaint = middle, str(error)
    try:
        parse(good, bad)
    except ValueError as error:
        complaint = str(error)
    return good, complaint


def first_malformed(content: bytes, ends: Positions, parse: Callable[[bytes], pa.RecordBatch]) -> tuple[int, str]:
    """Position and complaint of the first record that does not parse."""
    starts = [0, *ends.tolist()]
    record, complaint = first_refused(len(ends), lambda start, stop: parse(content[starts[start] : starts[stop]]))
    return starts[record], complaint


class TextLines:
    """Each line a row, without its line end (``\\n`` or ``\\r\\n``). Empty lines are rows."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    def begin(self, head: bytes, path: str) -> int:
        return 0

    def ends(self, content: bytes) -> Positions:
        return line_ends(content)

    def parse(self, content: bytes) -> pa.RecordBatch:
        """Drops the line ends from the bytes and shifts the offsets accordingly: no line is touched by itself."""
        data = np.frombuffer(content, np.uint8)
        dropped = data == NEWLINE
        ends = np.flatnonzero(dropped)
        if b"\r\n" in content:
            dropped[ends[ends > 0][data[ends[ends > 0] - 1] == RETURN] - 1] = True
        lines = len(ends) + (0 if content.endswith(b"\n") else 1)
        offsets = np.zeros(lines + 1, np.int32)
        offsets[1 : len(ends) + 1] = ends + 1 - np.cumsum(dropped)[ends]
        kept = data[~dropped]
        offsets[-1] = len(kept)
        line = pa.StringArray.from_buffers(lines, pa.py_buffer(offsets.data), pa.py_buffer(kept.data))
        line.validate(full=True)
        return pa.RecordBatch.from_arrays([line] * len(self._schema), schema=self._schema)


class JsonLines:
    """Each line an object; fields that the schema does not name are ignored, blank lines too."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        lenient = pa.schema([field.with_nullable(True) for field in schema])  # nulls are found below, with their field
        self._parse = pa_json.ParseOptions(explicit_schema=lenient, unexpected_field_behavior="ignore")

    def begin(self, head: bytes, path: str) -> int:
        return 0

    def ends(self, content: bytes) -> Positions:
        return line_ends(content)

    def parse(self, content: bytes) -> pa.RecordBatch:
        if not content.strip():
            return _empty(self._schema)
        options = pa_json.ReadOptions(use_threads=False, block_size=len(content) + 1)
        return _conforming(pa_json.read_json(_stream(content), options, self._parse), self._schema)


class CsvLines:
    """Comma-separated, with a header line; quotes may hold commas and line ends. Only the columns of the schema are
    decoded. An empty field is null, a quoted empty one is ``""``; in text columns that are not nullable both are."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._names: list[str] = []
        self._convert = pa_csv.ConvertOptions(
            column_types=schema,
            include_columns=schema.names,
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )

    def begin(self, head: bytes, path: str) -> int:
        ends = self.ends(head)
        length = int(ends[0]) if len(ends) else len(head)
        self._names = _header(head[:length], path)
        missing = [name for name in self._schema.names if name not in self._names]
        if missing:
            raise SourceError(f"{path}: the header has no column {', '.join(missing)}; it has {', '.join(self._names)}")
        return length

    def ends(self, content: bytes) -> Positions:
        """A line end inside quotes ends no record: an odd number of quotes stands before it."""
        ends = line_ends(content)
        if b'"' not in content:
            return ends
        quotes = np.flatnonzero(np.frombuffer(content, np.uint8) == QUOTE)
        outside: Positions = ends[np.searchsorted(quotes, ends) % 2 == 0]
        return outside

    def parse(self, content: bytes) -> pa.RecordBatch:
        if not content.strip():
            return _empty(self._schema)
        table = pa_csv.read_csv(
            _stream(content),
            pa_csv.ReadOptions(use_threads=False, block_size=len(content) + 1, column_names=self._names),
            pa_csv.ParseOptions(newlines_in_values=True),
            self._convert,
        )
        return _conforming(table, self._schema, empty_text="")


def _header(line: bytes, path: str) -> list[str]:
    try:
        return pa_csv.read_csv(_stream(line), pa_csv.ReadOptions(use_threads=False)).column_names
    except ValueError as error:
        raise SourceError(f"{path}: the first line is no CSV header ({error})") from error


def _stream(content: bytes) -> Any:
    """For Arrow's parsers, without a copy; their type stubs know only Python's files."""
    return pa.BufferReader(content)


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=schema)


def _conforming(table: pa.Table, schema: pa.Schema, empty_text: str | None = None) -> pa.RecordBatch:
    columns = []
    for field in schema:
        column = table.column(field.name).combine_chunks()
        if empty_text is not None and not field.nullable and pa.types.is_string(field.type):
            column = column.fill_null(empty_text)
        if column.null_count and not field.nullable:
            raise ValueError(f"field {field.name!r} is missing or null, but not declared '| None'")
        column.validate(full=True)
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=schema)
