"""Parses lines of text, JSON or CSV into columns, one block of complete records at a time, and finds malformed records.

The parsers are Arrow's, single-threaded. This module checks what they accept: text that is not UTF-8, numbers beyond
the range of floats, and missing values of columns that are not nullable. Times are parsed as the text or numbers in
which they are written.

A line is JSON if Python's ``json`` takes it, whatever the schema declares: of a name that is there twice the last value
counts, and NaN, Infinity and -Infinity are floats. Fields that are not declared may have any value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json

from clonos_py.columns.casting import cast, with_nulls
from clonos_py.connectors import malformed_reasons
from clonos_py.connectors.record_ends import (
    MARK,
    Records,
    byte_table,
    csv_line_count,
    csv_lines,
    csv_records,
    json_records,
    line_records,
)
from clonos_py.connectors.written_times import as_text, as_written, read_times
from clonos_py.model.errors import GraphError, SourceError, one_line
from clonos_py.model.record import ArrowSchema, Record, schema_of

_MARK = rb"\xef?+\xbb?+\xbf?+"
"""A byte order mark. At the start of its input Arrow's parser skips each of its bytes, even if others are missing."""

_LINE_OF_NULL = re.compile(rb"(?:\A" + _MARK + rb"|\n)[ \t\r]*null")
"""Arrow's parser turns such a line into a row of nulls. If it is the first line, the parser crashes with SIGSEGV."""

_NO_OBJECT = re.compile(rb"[ \t\r\n]*[^{ \t\r\n]")
"""The start of a record that is not an object."""

_READ_AGAIN_MAX = 256
"""The most records that are read a second time together."""

TEXT_SCHEMA = pa.schema([pa.field("line", pa.string(), nullable=False)])


def input_schema(source: str, format: str, schema: type[Record] | ArrowSchema | None, others: str) -> pa.Schema:
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

    def begin(self, head: bytes, path: str, whole: bool) -> int | None:
        """Reads the first lines of the file; returns the position of the first record, or None if it needs more bytes.
        ``whole``: no bytes follow."""
        ...

    def records(self, content: bytes, whole: bool) -> Records:
        """The complete records of ``content``, which begins with a record. ``whole``: no bytes follow, so the last
        record needs no line end."""
        ...

    def line_count(self, content: bytes, before: bytes) -> int:
        """The number of line ends in a piece of the file that follows ``before``."""
        ...

    def parse(self, content: bytes) -> pa.RecordBatch:
        """Parses complete records, none of which has to be parsed alone. Raises ValueError (pa.ArrowInvalid is one) if
        one is malformed."""
        ...

    def parse_isolated(self, record: bytes) -> pa.RecordBatch:
        """Parses one record that has to be parsed alone. Raises ValueError if it is malformed."""
        ...


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


class TextLines:
    """Each line is a row, without its line end (``\\n`` or ``\\r\\n``). Empty lines are rows."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    def begin(self, head: bytes, path: str, whole: bool) -> int:
        return 0

    def records(self, content: bytes, whole: bool) -> Records:
        return line_records(content, whole)

    def line_count(self, content: bytes, before: bytes) -> int:
        return content.count(b"\n")

    def parse_isolated(self, record: bytes) -> pa.RecordBatch:
        return self.parse(record)

    def parse(self, content: bytes) -> pa.RecordBatch:
        """Removes the line ends from the bytes and shifts the offsets, without work per line in Python."""
        data = np.frombuffer(content, np.uint8)
        dropped = data == ord(b"\n")
        ends = np.flatnonzero(dropped)
        if b"\r\n" in content:
            dropped[ends[ends > 0][data[ends[ends > 0] - 1] == ord(b"\r")] - 1] = True
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
        self._floats = _with_floats(schema)

    def begin(self, head: bytes, path: str, whole: bool) -> int | None:
        return _after_mark(head, whole)

    def records(self, content: bytes, whole: bool) -> Records:
        return json_records(content, whole)

    def line_count(self, content: bytes, before: bytes) -> int:
        return content.count(b"\n")

    def parse_isolated(self, record: bytes) -> pa.RecordBatch:
        """Refuses records that are not objects without Arrow's parser, whose calls take a thousand times as long."""
        if record.startswith(MARK):
            raise ValueError("it begins with a byte order mark, which may only stand at the start of a file")
        if _NO_OBJECT.match(record) and not _LINE_OF_NULL.match(record):
            raise ValueError("it is not a JSON object, which begins with '{'")
        if b"\0" in record:
            raise ValueError(malformed_reasons.reason_in_json(record, self._schema) or "it has a NUL byte")
        return self.parse(record)

    def parse(self, content: bytes) -> pa.RecordBatch:
        if not content.strip(b" \t\r\n"):
            return _empty(self._schema)
        if b"null" in content and _LINE_OF_NULL.search(content):
            raise ValueError("null is not a JSON object")
        try:
            return self._parsed(content)
        except ValueError as error:  # Arrow's errors are ValueErrors
            again = self._declared(content, error)
        try:
            return self._parsed(again)
        except ValueError as error:
            raise ValueError(malformed_reasons.in_words(error)) from error

    def _declared(self, content: bytes, error: ValueError) -> bytes:
        """The records that Arrow's parser has refused, with nothing but the fields of the schema. Of many records it is
        tried only where others than malformed ones are refused. Raises ValueError."""
        if b"\n" in content.strip(b" \t\r\n") and not (
            content.count(b"\n") <= _READ_AGAIN_MAX and malformed_reasons.is_of_parser_only(error)
        ):
            raise ValueError(malformed_reasons.in_words(error)) from error
        found: list[bytes] = []
        for line in content.split(b"\n"):
            if not line.strip(b" \t\r"):
                continue
            declared = None
            if (reason := malformed_reasons.reason_in_json(line, self._schema)) is None:
                declared = malformed_reasons.declared_json(line, self._schema)
            if declared is None:
                raise ValueError(reason or malformed_reasons.in_words(error)) from error
            found.append(declared)
        return b"\n".join(found)

    def _parsed(self, content: bytes) -> pa.RecordBatch:
        """Parses with Arrow's parser, and checks what it accepts: numbers that become infinite, constants that are not
        JSON, and bytes that are no text, also in fields that it does not read."""
        options = pa_json.ReadOptions(use_threads=False, block_size=len(content) + 1)
        table = pa_json.read_json(_stream(content), options, self._parse)
        if table.num_rows > _lines_with_text(content, table.num_rows):
            raise ValueError(malformed_reasons.MORE_THAN_ONE)
        if not is_text(content):
            raise ValueError(f"it is {malformed_reasons.NO_TEXT}")
        if has_unusual_constants(content):
            raise ValueError("it is not JSON: write infinities as Infinity and -Infinity, and NaN without a sign")
        widths = [width for name in self._floats for width in _infinite_floats(table.column(name).combine_chunks())]
        if widths and malformed_reasons.has_large_numbers(content, min(widths)):
            raise ValueError("a number does not fit into a float")
        return _conforming(table, self._schema)


class CsvLines:
    """Comma-separated values with a header line; quotes may enclose commas and line ends. Only the columns of the
    schema are decoded; each is in the header once. An empty field is null, a quoted empty one is ``""``; in text
    columns that are not nullable both are ``""``. An empty line is a row if there is one column and it is nullable;
    otherwise it is ignored.
    """

    def __init__(self, schema: pa.Schema, names: Sequence[str] = ()) -> None:
        """``names``: the columns, if there is no header line. Then each line is a record."""
        self._schema = schema
        self._names = list(names)
        self._records = csv_lines if names else csv_records
        self._floats = _with_floats(schema)
        self._convert = pa_csv.ConvertOptions(
            column_types=as_text(schema),
            include_columns=schema.names,
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )

    def begin(self, head: bytes, path: str, whole: bool) -> int | None:
        start = _after_mark(head, whole)
        if start is None or (start == len(head) and whole):
            return start
        found = csv_records(head[start:], whole)
        if not len(found.ends):
            return None
        length = int(found.ends[0])
        self._names = _header(head[start : start + length], path, is_open=0 in found.alone)
        missing = [name for name in self._schema.names if name not in self._names]
        if missing:
            there = one_line(", ".join(map(_shown_name, self._names)))
            others = len(self._names) == 1 and any(character in there for character in (";", "\\t", "|"))
            remedy = "; columns are separated by commas" if others else ""
            if any(name.strip() in missing for name in self._names):
                remedy = "; blanks beside a comma belong to the name: take them out of the file"
            raise SourceError(
                f"{path}: the header has no column {', '.join(missing)}; it has {there}{remedy}{foreign(head)}"
            )
        _check_unique(self._names, self._schema.names, path)
        return start + length

    def records(self, content: bytes, whole: bool) -> Records:
        found = self._records(content, whole)
        return found._replace(blank=found.blank[:0]) if self._blank_is_null else found

    def line_count(self, content: bytes, before: bytes) -> int:
        return csv_line_count(content, before)

    def parse_isolated(self, record: bytes) -> pa.RecordBatch:
        if len(self._records(record, True).alone):
            raise ValueError("a quote is not closed")
        return self.parse(record)

    @property
    def _blank_is_null(self) -> bool:
        return self._names == self._schema.names and len(self._schema) == 1 and self._schema.field(0).nullable

    def parse(self, content: bytes) -> pa.RecordBatch:
        blank_is_null = self._blank_is_null
        if not (content if blank_is_null else content.strip(b"\r\n")):
            return _empty(self._schema)
        if not content.endswith((b"\n", b"\r")):  # else an empty last field counts as quoted if the one before it is
            content += b"\n"
        options = pa_csv.ReadOptions(
            use_threads=False, block_size=len(content) + len(MARK) + 1, column_names=self._names
        )
        values = pa_csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=not blank_is_null)
        try:
            table = pa_csv.read_csv(_stream(_unmarked(content)), options, values, self._convert)
            infinite = [name for name in self._floats if _infinite_floats(table.column(name).combine_chunks())]
            if infinite:
                texts = pa_csv.ConvertOptions(
                    column_types=dict.fromkeys(infinite, pa.string()), include_columns=infinite
                )
                _check_infinities(table, pa_csv.read_csv(_stream(_unmarked(content)), options, values, texts))
            return _conforming(table, self._schema, empty_text="")
        except ValueError as error:  # Arrow's errors are ValueErrors
            raise ValueError(
                malformed_reasons.reason_in_csv(content, self._schema, self._names) or str(error)
            ) from error


def csv_rows(content: bytes, path: str) -> list[dict[str, Any]]:
    """The complete rows of a CSV file with a header line, with all values as text. Raises SourceError."""
    ends = csv_records(content, whole=False).ends
    if not len(ends):
        return []
    names = _header(content[: ends[0]], path, is_open=False)
    _check_unique(names, names, path)
    columns = CsvLines(pa.schema([pa.field(name, pa.string(), nullable=False) for name in names]), names)
    try:
        return columns.parse(content[ends[0] : ends[-1]]).to_pylist()
    except ValueError as error:
        raise SourceError(f"{path}: cannot be read as CSV ({one_line(error)})") from error


def is_text(content: bytes) -> bool:
    """Whether all bytes are UTF-8."""
    if content.isascii():
        return True
    ends = pa.py_buffer(np.array([0, len(content)], np.int32).data)
    try:
        pa.StringArray.from_buffers(1, ends, pa.py_buffer(content)).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def has_unusual_constants(content: bytes) -> bool:
    """Whether JSON has one of the constants that Arrow's parser takes and Python does not: Inf, -Inf and -NaN. Of the
    lines only those are searched that have one at the place of a value, which may still be in a text."""
    data = np.frombuffer(content, np.uint8)
    for first, others, sign, pair in ((b"I", b"nf", None, b"In"), (b"N", b"aN", b"-", b"-N")):
        if first not in content or not _has_pair(content, pair):
            continue
        at = np.flatnonzero(data == ord(first))
        at = at[(at > 0) & (at + 3 < len(data))]
        at = at[(data[at + 1] == others[0]) & (data[at + 2] == others[1])]
        at = at[data[at - 1] == ord(sign)] if sign else at[data[at + 3] != ord("i")]
        before = at - 1
        for _ in range(_BLANKS_MAX):
            if not len(blank := np.flatnonzero(_BLANK[data[before]])):
                break
            before[blank] -= 1
        for place in at[_BEFORE_VALUE[data[before]]].tolist():
            start, stop = content.rfind(b"\n", 0, place) + 1, content.find(b"\n", place)
            if malformed_reasons.has_unusual_constant(content[start : stop if stop >= 0 else len(content)]):
                return True
    return False


def _has_pair(content: bytes, pair: bytes) -> bool:
    """The same as ``pair in content``, in a tenth of its time."""
    words = (np.frombuffer(content, "<u2", (len(content) - start) // 2, start) for start in (0, 1))
    return any((some == int.from_bytes(pair, "little")).any() for some in words)


_BLANKS_MAX = 32
_BLANK, _BEFORE_VALUE = byte_table(b" \t\r-"), byte_table(b":,[ \t\r-")
"""Before a value there are blanks, or more of them than are looked at."""


def _with_floats(schema: pa.Schema) -> list[str]:
    """The columns with floats, at any depth."""

    def has_floats(kind: pa.DataType) -> bool:
        return pa.types.is_floating(kind) or any(map(has_floats, _inner_types(kind)))

    return [field.name for field in schema if has_floats(field.type)]


def _infinite_floats(column: Any) -> list[int]:
    """The widths in bits of the floats of a column, at any depth, of which one is infinite."""
    kind: Any = column.type
    if pa.types.is_floating(kind):
        return [kind.bit_width] if pc.any(pc.is_inf(column)).as_py() else []
    if not kind.num_fields:
        return []
    inner = column.flatten()
    return [width for one in (inner if isinstance(inner, list) else [inner]) for width in _infinite_floats(one)]


def _check_infinities(table: pa.Table, texts: pa.Table) -> None:
    """Raises ValueError if a float is infinite whose text is a number. Arrow's parser accepts numbers of any size."""
    for name in texts.column_names:
        written: Any = pc.match_substring_regex(texts.column(name), _INFINITY)
        if pc.any(pc.and_not(pc.is_inf(table.column(name)), written)).as_py():
            raise ValueError(f"field {name!r} has a number that does not fit")


_INFINITY = "(?i)^[ \t]*[+-]?inf(inity)?[ \t]*$"


def _lines_with_text(content: bytes, expected: int) -> int:
    """The number of lines that are not blank. If there are ``expected`` lines, none of them is checked."""
    lines = int(np.count_nonzero(np.frombuffer(content, np.uint8) == ord("\n"))) + (not content.endswith(b"\n"))
    return lines if lines == expected else json_records(content, whole=True).row_count(0, lines)


def _after_mark(head: bytes, whole: bool) -> int | None:
    """The position after a byte order mark, if there is one; None if more bytes are needed."""
    if head.startswith(MARK):
        return len(MARK)
    return None if not whole and MARK.startswith(head) else 0


def foreign(head: bytes) -> str:
    """What a file is whose first bytes are these, if it is no text, with the remedy; to be added to an error."""
    found = next((what for signature, what in _SIGNATURES.items() if head.startswith(signature)), None)
    return f"; the file {found}" if found else ""


_SIGNATURES = {
    b"\x1f\x8b": "is compressed by gzip: decompress it",
    b"\x28\xb5\x2f\xfd": "is compressed by Zstandard: decompress it",
    b"PK\x03\x04": "is a ZIP archive: unpack it",
    b"PAR1": "is Parquet: give format='parquet'",
    b"\xff\xfe": "is UTF-16: convert it to UTF-8",
    b"\xfe\xff": "is UTF-16: convert it to UTF-8",
}


def _header(line: bytes, path: str, is_open: bool) -> list[str]:
    try:
        if is_open:
            raise ValueError("a quote is not closed")
        if b'"' not in line and (names := line.rstrip(b"\r\n").decode()):  # Arrow's parser takes 10 times as long
            return names.split(",")
        return pa_csv.read_csv(
            _stream(_unmarked(line + b"\n")),
            pa_csv.ReadOptions(use_threads=False),
            pa_csv.ParseOptions(newlines_in_values=True),
        ).column_names
    except ValueError as error:
        problem = f"{path}: the first line is not a CSV header ({one_line(error)}){foreign(line)}"
        raise SourceError(problem) from error


def _shown_name(name: str) -> str:
    """The name of a column for a message, in quotes if blanks around it could not be seen."""
    return repr(name) if name != name.strip() else repr(name)[1:-1]


def _check_unique(names: Sequence[str], read: Sequence[str], path: str) -> None:
    """Raises SourceError if the header ``names`` has a column that is ``read`` more than once. Other columns may be."""
    if len(set(names)) == len(names):
        return
    for name in read:
        if (amount := names.count(name)) > 1:
            raise SourceError(
                f"{path}: the header has the column {name!r} {amount} times, so it is not clear which one to read: "
                "rename all but one"
            )


def _unmarked(content: bytes) -> bytes:
    """Input for Arrow's CSV parser, which skips one byte order mark."""
    return MARK + content if content.startswith(MARK[:1]) else content


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
