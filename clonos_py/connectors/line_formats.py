"""Parses lines of text, JSON or CSV into columns, one block of complete records at a time, and finds malformed records.

The parsers are Arrow's, single-threaded. This module checks what they accept: text that is not UTF-8, and missing
values of columns that are not nullable. Times are parsed as the text or numbers in which they are written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json

from clonos_py.columns.casting import cast, with_nulls
from clonos_py.connectors import malformed_reasons
from clonos_py.connectors.written_times import as_text, as_written, read_times
from clonos_py.model.errors import GraphError, SourceError
from clonos_py.model.record import Record, schema_of

NEWLINE, RETURN, QUOTE, OPEN, CLOSE = 10, 13, 34, 123, 125

_FIELD = rb'(?:"[^"]*(?:""[^"]*)*"|(?:[^",\r\n][^,\r\n]*)?)'
_QUOTED_RECORD = re.compile(_FIELD + rb"(?:," + _FIELD + rb")*\r?\n?")
"""A CSV record in which quotes enclose whole fields. Arrow's parser also accepts text after a closing quote."""

_OPEN_RECORD = re.compile(rb"(?:" + _FIELD + rb",)*" + rb'"[^"]*(?:""[^"]*)*')
"""A CSV record that ends inside quotes."""

_BOM = b"\xef\xbb\xbf"
_MARK = rb"\xef?+\xbb?+\xbf?+"
"""A byte order mark. At the start of its input Arrow's parser skips each of its bytes, even if others are missing."""

_LINE_OF_NULL = re.compile(rb"(?:\A" + _MARK + rb"|\n)[ \t\r]*null")
"""Arrow's parser turns such a line into a row of nulls. If it is the first line, the parser crashes with SIGSEGV."""

_NO_OBJECT = re.compile(_MARK + rb"[ \t\r\n]*[^{ \t\r\n]")
"""The start of a record that is not an object."""

Positions = npt.NDArray[np.int64]
TEXT_SCHEMA = pa.schema([pa.field("line", pa.string(), nullable=False)])


def input_schema(source: str, format: str, schema: type[Record] | pa.Schema | None, others: str) -> pa.Schema:
    """The columns of a source's rows. ``others``: the formats that have a schema. Raises GraphError."""
    if format == "text":
        if schema is not None:
            raise GraphError(f"{source}: text has the one column 'line'; for a schema choose {others}")
        return TEXT_SCHEMA
    if schema is None:
        raise GraphError(f"{source}: {format} needs schema=, a Record class or a pyarrow schema")
    columns = schema_of(schema)
    check_readable(source, format, columns)
    return columns


def check_readable(source: str, format: str, schema: pa.Schema) -> None:
    """Raises GraphError for a column that the format cannot represent; JSON and CSV are tested with a null."""
    for field in schema:
        try:
            if format in ("json", "jsonl"):
                if any(map(_has_dates, _inner_types(field.type))):
                    raise NotImplementedError
                JsonLines(pa.schema([field.with_nullable(True)])).parse(b"{}")
            elif format == "csv":
                CsvLines(pa.schema([field.with_nullable(True)]), [field.name]).parse(b"\n")
        except NotImplementedError:  # Arrow's error is a NotImplementedError
            raise GraphError(
                f"{source}: field {field.name!r} is {field.type}, which cannot be read from {format}: declare it as "
                "another type, such as text (str), and convert it in the job, or choose another format"
            ) from None


def _inner_types(kind: pa.DataType) -> list[pa.DataType]:
    return [kind.field(number).type for number in range(kind.num_fields)]


def _has_dates(kind: pa.DataType) -> bool:
    """Whether a type contains dates. Arrow's parser reads dates as numbers of days; only those outside of lists and
    objects are read as text here."""
    return pa.types.is_date(kind) or any(map(_has_dates, _inner_types(kind)))


class LineFormat(Protocol):
    """The format of one file. ``begin`` is called once, before all other methods."""

    def begin(self, head: bytes, path: str) -> int:
        """Reads the first lines of the file; returns the position of the first record."""
        ...

    def ends(self, content: bytes, whole: bool = False) -> Positions:
        """The end position of each complete record of ``content``, which begins with a record. ``whole``: no bytes
        follow, so the last record needs no line end."""
        ...

    def parse(self, content: bytes) -> pa.RecordBatch:
        """Parses complete records into columns. Raises ValueError (pa.ArrowInvalid is one) if one is malformed."""
        ...

    def isolated(self, content: bytes, ends: Positions) -> Sequence[int]:
        """The records to parse alone: malformed ones may change how their neighbours are parsed."""
        ...

    def parse_isolated(self, record: bytes) -> pa.RecordBatch:
        """Parses one record that ``isolated`` has returned. Raises ValueError if it is malformed."""
        ...


def line_ends(content: bytes) -> Positions:
    return np.flatnonzero(np.frombuffer(content, np.uint8) == NEWLINE) + 1


def _with_last(ends: Positions, content: bytes, whole: bool) -> Positions:
    """Adds the end of a last record without a line end, if no bytes follow."""
    if whole and content and (not len(ends) or ends[-1] < len(content)):
        return np.append(ends, len(content))
    return ends


def _starts(ends: Positions) -> Positions:
    """The starts of the records with these ends."""
    starts = np.zeros(len(ends), np.int64)
    starts[1:] = ends[:-1]
    return starts


def first_malformed_index(count: int, parse: Callable[[int, int], object]) -> tuple[int, str]:
    """Index of the first of ``count`` records that does not parse, and the reason, found by bisection. ``parse`` takes
    the records [start, stop) and raises ValueError, as it does for all of them together."""
    good, bad, reason = 0, count, ""
    while bad - good > 1:
        middle = (good + bad) // 2
        try:
            parse(good, middle)
            good = middle
        except ValueError as error:
            bad, reason = middle, str(error)
    try:
        parse(good, bad)
    except ValueError as error:
        reason = str(error)
    return good, reason


def first_malformed(content: bytes, ends: Positions, parse: Callable[[bytes], pa.RecordBatch]) -> tuple[int, str]:
    """Position of the first record that does not parse, and the reason."""
    starts = [0, *ends.tolist()]
    record, reason = first_malformed_index(len(ends), lambda start, stop: parse(content[starts[start] : starts[stop]]))
    return starts[record], reason


class TextLines:
    """Each line is a row, without its line end (``\\n`` or ``\\r\\n``). Empty lines are rows."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    def begin(self, head: bytes, path: str) -> int:
        return 0

    def ends(self, content: bytes, whole: bool = False) -> Positions:
        return _with_last(line_ends(content), content, whole)

    def isolated(self, content: bytes, ends: Positions) -> Sequence[int]:
        return ()

    def parse_isolated(self, record: bytes) -> pa.RecordBatch:
        return self.parse(record)

    def parse(self, content: bytes) -> pa.RecordBatch:
        """Removes the line ends from the bytes and shifts the offsets, without work per line in Python."""
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
        _check_values(line, "it")
        return pa.RecordBatch.from_arrays([line] * len(self._schema), schema=self._schema)


class JsonLines:
    """Each line is an object. Fields that the schema does not name, and blank lines, are ignored."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        written = as_written(schema)
        lenient = pa.schema([(field.name, with_nulls(field.type)) for field in written])  # nulls are checked below
        self._parse = pa_json.ParseOptions(explicit_schema=lenient, unexpected_field_behavior="ignore")

    def begin(self, head: bytes, path: str) -> int:
        return 0

    def ends(self, content: bytes, whole: bool = False) -> Positions:
        return _with_last(line_ends(content), content, whole)

    def isolated(self, content: bytes, ends: Positions) -> Sequence[int]:
        """Lines that do not begin and end as an object does: several of them together could be one object."""
        data = np.frombuffer(content, np.uint8)
        first, last = data[_starts(ends)], _last_bytes(data, ends)
        blank = (first == NEWLINE) | (first == RETURN)
        return np.flatnonzero(~blank & ((first != OPEN) | (last != CLOSE))).tolist()

    def parse_isolated(self, record: bytes) -> pa.RecordBatch:
        """Refuses records that are not objects without Arrow's parser, whose calls take a thousand times as long."""
        if _NO_OBJECT.match(record) and not _LINE_OF_NULL.match(record):
            raise ValueError("it is not a JSON object, which begins with '{'")
        return self.parse(record)

    def parse(self, content: bytes) -> pa.RecordBatch:
        if not content.strip():
            return _empty(self._schema)
        if b"null" in content and _LINE_OF_NULL.search(content):
            raise ValueError("null is not a JSON object")
        options = pa_json.ReadOptions(use_threads=False, block_size=len(content) + 1)
        try:
            table = pa_json.read_json(_stream(content), options, self._parse)
            if table.num_rows <= _lines_with_text(content, table.num_rows):
                return _conforming(table, self._schema)
        except ValueError as error:  # Arrow's errors are ValueErrors
            raise ValueError(malformed_reasons.reason_in_json(content, self._schema) or str(error)) from error
        raise ValueError("a line has more than one object")


class CsvLines:
    """Comma-separated values with a header line; quotes may enclose commas and line ends. Only the columns of the
    schema are decoded. An empty field is null, a quoted empty one is ``""``; in text columns that are not nullable both
    are ``""``. An empty line is a row if there is one column and it is nullable; otherwise it is ignored.

    With ``resynchronize`` a malformed record of several lines ends with its first line. So an unbalanced quote does not
    make all following records malformed.
    """

    def __init__(self, schema: pa.Schema, names: Sequence[str] = (), resynchronize: bool = False) -> None:
        """``names``: the columns, if there is no header line."""
        self._schema, self._resynchronize = schema, resynchronize
        self._names = list(names)
        self._convert = pa_csv.ConvertOptions(
            column_types=as_text(schema),
            include_columns=schema.names,
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )

    def begin(self, head: bytes, path: str) -> int:
        ends = _unquoted_ends(head, whole=False)
        length = int(ends[0]) if len(ends) else len(head)
        self._names = _header(head[:length], path)
        missing = [name for name in self._schema.names if name not in self._names]
        if missing:
            raise SourceError(f"{path}: the header has no column {', '.join(missing)}; it has {', '.join(self._names)}")
        return length

    def ends(self, content: bytes, whole: bool = False) -> Positions:
        if b'"' not in content:
            return _with_last(line_ends(content), content, whole)
        return self._resynchronized(content, whole) if self._resynchronize else _unquoted_ends(content, whole)

    def _resynchronized(self, content: bytes, whole: bool) -> Positions:
        """The ends of records, with resynchronization. A broken record ends with its first line. After it, each line
        end that was inside quotes is outside, and vice versa. So line ends of both kinds are computed once and used in
        turn."""
        found: list[Positions] = []
        kinds = _ends_of_both_kinds(content, whole)
        at, kind = 0, 0
        while True:
            ends, several = kinds[kind]
            first = int(np.searchsorted(ends, at, side="right"))
            broken = self._first_broken(content, ends, several[np.searchsorted(several, first) :])
            found.append(ends[first:broken])
            if broken is None:
                return np.concatenate(found)
            at = content.index(b"\n", int(ends[broken - 1]) if broken else 0) + 1
            found.append(np.array([at]))
            kind = 1 - kind

    def _first_broken(self, content: bytes, ends: Positions, several: Positions) -> int | None:
        """The first malformed record among the numbers ``several``. The number of records parsed at a time doubles, so
        that records after a broken one are not parsed again for each broken record before it."""

        def parse(numbers: list[int]) -> None:
            records = [content[ends[number - 1] if number else 0 : ends[number]] for number in numbers]
            if self._parse(records).num_rows != len(records):
                raise ValueError("these are other records")

        def refused(numbers: list[int]) -> int:
            return numbers[first_malformed_index(len(numbers), lambda start, stop: parse(numbers[start:stop]))[0]]

        start, count = 0, 1
        while start < len(several):
            numbers = several[start : start + count].tolist()
            try:
                parse(numbers)
            except ValueError:
                return refused(numbers)
            start, count = start + count, 2 * count
        return None

    def _parse(self, records: Sequence[bytes]) -> pa.RecordBatch:
        if not all(map(_QUOTED_RECORD.fullmatch, records)):
            raise ValueError("quotes do not enclose whole fields")
        return self.parse(b"".join(records))

    def isolated(self, content: bytes, ends: Positions) -> Sequence[int]:
        """Records with an odd number of quotes, in which one may not be closed. Records in which quotes enclose whole
        fields, or stand inside an unquoted field, have none open and are left out."""
        if b'"' not in content:
            return ()
        quotes = np.flatnonzero(np.frombuffer(content, np.uint8) == QUOTE)
        odd = np.flatnonzero(np.diff(np.searchsorted(quotes, ends), prepend=0) % 2)
        spans = zip(odd.tolist(), _starts(ends)[odd].tolist(), ends[odd].tolist(), strict=True)
        return [number for number, start, end in spans if not _is_closed(content[start:end])]

    def parse_isolated(self, record: bytes) -> pa.RecordBatch:
        """Also detects an unclosed quote, which would swallow a second copy of the record."""
        closed = record if record.endswith(b"\n") else record + b"\n"
        if closed.count(b'"') % 2 and (_OPEN_RECORD.fullmatch(closed) or self.parse(closed + closed).num_rows != 2):
            raise ValueError("a quote is not closed")
        return self.parse(closed)

    def parse(self, content: bytes) -> pa.RecordBatch:
        blank_is_null = self._names == self._schema.names and len(self._schema) == 1 and self._schema.field(0).nullable
        if not (content if blank_is_null else content.strip(b"\r\n")):
            return _empty(self._schema)
        options = pa_csv.ReadOptions(use_threads=False, block_size=len(content) + 1, column_names=self._names)
        values = pa_csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=not blank_is_null)
        try:
            table = pa_csv.read_csv(_stream(content), options, values, self._convert)
            return _conforming(table, self._schema, empty_text="")
        except ValueError as error:  # Arrow's errors are ValueErrors
            raise ValueError(
                malformed_reasons.reason_in_csv(content, self._schema, self._names) or str(error)
            ) from error


def _lines_with_text(content: bytes, expected: int) -> int:
    """The number of lines that are not blank. If there are ``expected`` lines, none of them is checked."""
    lines = content.count(b"\n") + (not content.endswith(b"\n"))
    return lines if lines == expected else sum(not line.isspace() for line in content.splitlines() if line)


def _last_bytes(data: npt.NDArray[np.uint8], ends: Positions) -> npt.NDArray[np.uint8]:
    """The last byte of each record before its line end."""
    at = ends - 1
    for end in (NEWLINE, RETURN):
        at = np.where((data[at] == end) & (at > 0), at - 1, at)
    return data[at]


def _unquoted_ends(content: bytes, whole: bool) -> Positions:
    """The ends of records. A line end after an odd number of quotes is inside quotes and ends no record."""
    ends = line_ends(content)
    quotes = np.flatnonzero(np.frombuffer(content, np.uint8) == QUOTE)
    outside: Positions = ends[np.searchsorted(quotes, ends) % 2 == 0]
    return _with_last(outside, content, whole)


class _Ends(NamedTuple):
    """The ends of records; ``several``: the numbers of records with more than one line."""

    positions: Positions
    several: Positions


def _ends_of_both_kinds(content: bytes, whole: bool) -> tuple[_Ends, _Ends]:
    """The record ends if the first line begins outside quotes, and those if it begins inside them."""
    lines = _with_last(line_ends(content), content, whole)
    quotes = np.flatnonzero(np.frombuffer(content, np.uint8) == QUOTE)
    inside = np.searchsorted(quotes, lines) % 2 == 1

    def ends(last: npt.NDArray[np.bool_]) -> _Ends:
        if whole:
            last[-1:] = True
        numbers = np.flatnonzero(last)
        return _Ends(lines[numbers], np.flatnonzero(np.diff(numbers, prepend=-1) > 1))

    return ends(~inside), ends(inside)


def _is_closed(record: bytes) -> bool:
    """Whether all quotes of a record enclose whole fields. Not so after a byte order mark: Arrow's parser skips the
    mark at the start of its input, and a quote after it would open a field."""
    return not record.startswith(_BOM) and _QUOTED_RECORD.fullmatch(record) is not None


def _header(line: bytes, path: str) -> list[str]:
    try:
        return pa_csv.read_csv(_stream(line), pa_csv.ReadOptions(use_threads=False)).column_names
    except ValueError as error:
        raise SourceError(f"{path}: the first line is not a CSV header ({error})") from error


def _stream(content: bytes) -> Any:
    """Input for Arrow's parsers, without a copy. Their type stubs accept Python files only."""
    return pa.BufferReader(content)


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=schema)


def _check_values(column: pa.Array[Any], what: str) -> None:
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        problem = "has too many digits" if pa.types.is_decimal(column.type) else f"is {malformed_reasons.NO_TEXT}"
        raise ValueError(f"{what} {problem}") from None


def _conforming(table: pa.Table, schema: pa.Schema, empty_text: str | None = None) -> pa.RecordBatch:
    columns = []
    for field in schema:
        column = read_times(table.column(field.name).combine_chunks(), field)
        if empty_text is not None and not field.nullable and pa.types.is_string(field.type):
            column = column.fill_null(empty_text)
        if column.null_count and not field.nullable:
            raise ValueError(f"field {field.name!r} {malformed_reasons.MISSING}")
        _check_values(column, f"field {field.name!r}")
        columns.append(cast(column, field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)
