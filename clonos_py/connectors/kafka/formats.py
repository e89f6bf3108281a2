"""Formats of messages: convert values to columns and back, one batch of messages at a time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from importlib.util import find_spec
from itertools import groupby
from typing import Any, NamedTuple, Protocol

import msgspec
import pyarrow as pa

from clonos_py.columns.casting import cast
from clonos_py.connectors.json_values import JsonValues
from clonos_py.connectors.line_formats import check_readable, first_malformed_index
from clonos_py.connectors.row_files import json_lines
from clonos_py.connectors.written_times import fitted_times
from clonos_py.model.errors import GraphError, one_line
from clonos_py.model.record_codec import FieldError, encode

_MESSAGE_BYTES = 500_000
"""The size of rows per message of the format arrow. Brokers accept 1 MB by default."""
FORMATS = ("json", "text", "bytes", "msgpack", "arrow")


class Malformed(Exception):
    """A value cannot be decoded, for the reason in the text. ``message``: its position among the values."""

    def __init__(self, message: int, text: str) -> None:
        super().__init__(text)
        self.message = message


class Decoded(NamedTuple):
    """Decoded values. ``counts``: the number of rows of each message; None means one each."""

    rows: pa.RecordBatch
    counts: Sequence[int] | None = None


class Format(Protocol):
    """The format of the values of one topic."""

    def decode(self, values: Sequence[bytes]) -> Decoded:
        """Raises Malformed."""
        ...

    def encode(self, rows: pa.RecordBatch) -> list[bytes]:
        """The value of each row; for ``arrow`` each value holds many rows."""
        ...


class FormatDefinition(Protocol):
    """A format with settings."""

    def create(self, rows: pa.Schema, topic: str | None) -> Format:
        """See ``format_of``."""
        ...


def format_of(
    format: str | FormatDefinition, schema: pa.Schema, topic: str | None = None, owner: str = "KafkaSource"
) -> Format:
    """Creates a format. ``schema``: the columns that are parts of the value. ``topic``: the topic to write to; None for
    reading. Raises GraphError."""
    if not isinstance(format, str):
        return format.create(schema, topic)
    match format:
        case "json":
            if topic is None:
                check_readable(owner, "json", schema)
            return _Json(schema)
        case "msgpack":
            return _Msgpack(schema)
        case "arrow":
            return _Arrow(schema)
        case "text" | "bytes":
            return _Plain(format, schema)
        case _:
            raise GraphError(f"unknown format {format!r}: choose one of {', '.join(FORMATS)}, Avro(...), Protobuf(...)")


def needed(*modules: str, extra: str, format: str) -> None:
    """Raises GraphError if one of the modules, which an extra of this package installs, is missing."""
    for module in modules:
        if find_spec(module.partition(".")[0]) is None:
            raise GraphError(f"the format {format} needs {module}: pip install 'clonos-py[{extra}]'")


class _Together:
    """Base of formats that decode values together. If that fails, bisection finds the first malformed value."""

    def decode(self, values: Sequence[bytes]) -> Decoded:
        try:
            return self.decoded(values)
        except ValueError:
            message, text = first_malformed_index(len(values), lambda start, stop: self.decoded(values[start:stop]))
            raise Malformed(message, one_line(text)) from None

    def decoded(self, values: Sequence[bytes]) -> Decoded:
        """Decodes all values. Raises ValueError if one of them is malformed."""
        raise NotImplementedError


class ByRow(_Together):
    """Base of formats in which each value is a row."""

    def decoded(self, values: Sequence[bytes]) -> Decoded:
        return Decoded(self.parsed(values))

    def parsed(self, values: Sequence[bytes]) -> pa.RecordBatch:
        """Decodes all values. Raises ValueError if one of them is malformed."""
        raise NotImplementedError


class _Json(ByRow):
    """Each value is a JSON object. Fields that the schema does not name are ignored."""

    def __init__(self, schema: pa.Schema) -> None:
        self._values = JsonValues(schema)

    def parsed(self, values: Sequence[bytes]) -> pa.RecordBatch:
        return self._values.parse(values)

    def encode(self, rows: pa.RecordBatch) -> list[bytes]:
        return bytes(json_lines(rows)).split(b"\n")[:-1]


class _Msgpack(ByRow):
    """Each value is a msgpack map. Decimals, dates and timedeltas are text; datetimes are msgpack timestamps."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._absent = {field.name: None for field in schema if field.nullable}
        self._decimals = [field.name for field in schema if pa.types.is_decimal(field.type)]
        self._texts = {field.name: kind for field in schema if (kind := _kind_of_text(field.type)) is not None}
        self._decode = msgspec.msgpack.Decoder(dict[str, Any]).decode

    def parsed(self, values: Sequence[bytes]) -> pa.RecordBatch:
        try:
            found = [{**self._absent, **self._decode(value)} for value in values]
            for name in self._decimals:
                for row in found:
                    row[name] = Decimal(row[name]) if isinstance(row.get(name), str) else row.get(name)
            for name, kind in self._texts.items():
                for row in found:
                    row[name] = msgspec.convert(row[name], kind) if isinstance(row.get(name), str) else row.get(name)
            return encode(found, self._schema)
        except (msgspec.MsgspecError, FieldError, InvalidOperation) as problem:
            raise ValueError(one_line(problem)) from problem

    def encode(self, rows: pa.RecordBatch) -> list[bytes]:
        return list(map(msgspec.msgpack.Encoder(decimal_format="string").encode, rows.to_pylist()))


def _kind_of_text(type_: pa.DataType) -> type[Any] | None:
    """The Python type that a text is parsed as, for a column of times; None for other columns."""
    if pa.types.is_date(type_):
        return date
    if pa.types.is_duration(type_):
        return timedelta
    return datetime if pa.types.is_timestamp(type_) else None


class _Plain(ByRow):
    """Each value is a row of one column: UTF-8 text or bytes."""

    def __init__(self, name: str, schema: pa.Schema) -> None:
        fits = pa.types.is_string if name == "text" else pa.types.is_binary
        if len(schema) != 1 or not fits(schema.field(0).type):
            raise GraphError(f"the format {name} needs one column of {'text' if name == 'text' else 'bytes'}")
        self._schema = schema

    def parsed(self, values: Sequence[bytes]) -> pa.RecordBatch:
        column = pa.array(values, pa.binary()).cast(self._schema.field(0).type)
        return pa.RecordBatch.from_arrays([column], schema=self._schema)

    def encode(self, rows: pa.RecordBatch) -> list[bytes]:
        return rows.column(0).cast(pa.binary()).to_pylist()  # type: ignore[return-value]


class _Arrow(_Together):
    """Each value is an Arrow IPC stream: a schema and any number of batches. It may have further columns."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    def decoded(self, values: Sequence[bytes]) -> Decoded:
        try:
            return self._parsed(values)
        except (pa.ArrowException, OSError, KeyError) as problem:
            raise ValueError(str(problem)) from problem

    def _parsed(self, values: Sequence[bytes]) -> Decoded:
        """Converts values with the same schema together, as checks of each value would dominate the cost."""
        tables = list(map(self._read, values))
        counts = [table.num_rows for table in tables]
        runs = [list(run) for _, run in groupby(tables, key=lambda table: table.schema)]
        whole = pa.concat_tables([self._fitted(pa.concat_tables(run)) for run in runs]) if runs else None
        batches = [] if whole is None else whole.combine_chunks().to_batches()
        return Decoded(batches[0] if batches else pa.RecordBatch.from_pylist([], schema=self._schema), counts)

    @staticmethod
    def _read(value: bytes) -> pa.Table:
        with pa.ipc.open_stream(value) as stream:
            return stream.read_all()

    def _fitted(self, table: pa.Table) -> pa.Table:
        table.validate(full=True)
        missing = [name for name in self._schema.names if name not in table.schema.names]
        if missing:
            raise ValueError(f"there is no column {missing[0]!r}")
        found = table.select(self._schema.names)
        for field in self._schema:
            if not field.nullable and found.column(field.name).null_count:
                raise ValueError(f"field {field.name!r} is null, but not declared '| None'")
        columns = [self._column(found.column(field.name).combine_chunks(), field) for field in self._schema]
        return pa.Table.from_arrays(columns, schema=self._schema)

    @staticmethod
    def _column(found: pa.Array[Any], field: pa.Field[Any]) -> pa.Array[Any]:
        times = fitted_times(found, field)
        made: pa.Array[Any] = cast(found, field.type) if times is None else times
        return made

    def encode(self, rows: pa.RecordBatch) -> list[bytes]:
        """Splits rows into several messages if one would be too large for brokers."""
        size = max(1, rows.num_rows * _MESSAGE_BYTES // max(rows.nbytes, 1))
        return [self._stream(rows.slice(start, size)) for start in range(0, rows.num_rows, size)]

    def _stream(self, rows: pa.RecordBatch) -> bytes:
        made = pa.BufferOutputStream()
        with pa.ipc.new_stream(made, rows.schema) as stream:
            stream.write_batch(rows)
        return made.getvalue().to_pybytes()


def by_row(counts: Sequence[int] | None, column: Sequence[Any]) -> Sequence[Any]:
    """Repeats each message's item for each of its rows."""
    if counts is None:
        return column
    return [item for item, count in zip(column, counts, strict=True) for _ in range(count)]
