"""Converts separate JSON objects, such as messages, to columns.

Most rows have only numbers, text and booleans. Small batches of these are decoded by msgspec: 50 objects of three
fields take 40 us, with Arrow's reader 480 us. Large batches go to Arrow's reader: it takes more processor time (2 us an
object instead of 0.5), but releases the interpreter's lock, for which the client of a broker waits (from topic to topic
122 thousand messages a second instead of 98).

An object is malformed if both decoders refuse it, so a batch that is refused is split: msgspec refuses NaN, Arrow's
reader refuses other values in a batch. What ``JsonLines`` says of a line holds for an object here, too, and does not
depend on how many objects come together.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from operator import attrgetter
from typing import Any

import msgspec
import pyarrow as pa

from clonos_py.columns.times import EPOCH_NUMBER
from clonos_py.columns.views import concat
from clonos_py.connectors.line_formats import JsonLines, is_text
from clonos_py.connectors.malformed import parsed
from clonos_py.connectors.record_ends import MARK
from clonos_py.connectors.written_times import as_written, read_times

_FEW = 1_000
_MINUS_ZERO = re.compile(rb"-0(?![.0-9eE])")
_TYPES: dict[pa.DataType, Any] = {
    pa.int64(): int, pa.float64(): float, pa.string(): str, pa.bool_(): bool, EPOCH_NUMBER: Decimal
}  # fmt: skip


class JsonValues:
    """Parses JSON objects; fields that the schema does not name are ignored."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema, self._lines = schema, JsonLines(schema)
        self._written = as_written(schema)
        self._decode = _decoder(self._written)
        self._columns = [attrgetter(_attribute(number)) for number in range(len(schema))]
        self._floats = [number for number, field in enumerate(schema) if pa.types.is_floating(field.type)]

    def parse(self, values: Sequence[bytes]) -> pa.RecordBatch:
        """One row per value. Raises ValueError if one of them is not an object of the schema."""
        if self._decode is not None and len(values) < _FEW:
            try:
                objects = list(map(self._decode, values))
                columns = [list(map(column, objects)) for column in self._columns]
                if self._is_sure(b"".join(values), columns):
                    return self._rows(columns)
            except (msgspec.MsgspecError, OverflowError, RecursionError, pa.ArrowException):
                pass
        try:
            return self._parsed(values)
        except ValueError:
            if self._decode is None or len(values) < 2:
                raise
        middle = len(values) // 2
        return concat([self.parse(values[:middle]), self.parse(values[middle:])])

    def _is_sure(self, content: bytes, columns: Sequence[Sequence[Any]]) -> bool:
        """Whether Arrow's reader would say the same: msgspec takes bytes that are no text where it skips a field, and
        makes 0.0 of -0."""
        has_zero = any(0.0 in columns[number] for number in self._floats)
        return is_text(content) and not (has_zero and _MINUS_ZERO.search(content))

    def _rows(self, columns: Sequence[Sequence[Any]]) -> pa.RecordBatch:
        written = [pa.array(column, field.type) for column, field in zip(columns, self._written, strict=True)]
        read = [read_times(column, field) for column, field in zip(written, self._schema, strict=True)]
        return pa.RecordBatch.from_arrays(read, schema=self._schema)

    def _parsed(self, values: Sequence[bytes]) -> pa.RecordBatch:
        """Parses with Arrow's reader, which takes one object per line. Line breaks inside a value are outside of its
        strings, as JSON escapes those. A byte order mark before a value is no part of it."""
        content = b"\n".join(values)
        if content.count(b"\n") >= len(values) or MARK in content:
            content = b"\n".join([value.removeprefix(MARK).replace(b"\n", b" ") for value in values])
        found = parsed(self._lines, content, self._lines.records(content, whole=True), refused_max=0)
        if found.refused:
            raise ValueError(found.refused[0].reason)
        if found.rows.num_rows != len(values):
            raise ValueError("not one JSON object")
        return found.rows


def _decoder(schema: pa.Schema) -> Callable[[bytes], Any] | None:
    """A decoder to objects with an attribute for each column; None if a column has another type."""
    if any(field.type not in _TYPES for field in schema):
        return None
    fields = [
        (_attribute(number), _TYPES[field.type] | None, None)
        if field.nullable
        else (_attribute(number), _TYPES[field.type])
        for number, field in enumerate(schema)
    ]
    names = {_attribute(number): field.name for number, field in enumerate(schema)}
    made = msgspec.defstruct("Value", fields, rename=names, kw_only=True, gc=False)
    return msgspec.json.Decoder(made).decode


def _attribute(number: int) -> str:
    return f"column_{number}"
