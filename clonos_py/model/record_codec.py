"""Conversion between record batches and rows: decodes the columns that a Record names, and encodes with type checks.

Arrow itself would turn 1.5 into 1 and b"x" into "x" silently. Here every value must have its field's type, or be
converted without loss. See ``field_values`` and, for values in lists and objects, ``nested_values``.

Datetimes in rows are aware and in UTC. A naive one is refused, since its zone would depend on the machine. A column
without a zone is in UTC. Fractions of a microsecond, which a datetime cannot hold, are cut off.

Rows are decoded in slices, so that the interpreter lock is not held long.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter, itemgetter
from typing import Any, TypeVar

import msgspec
import pyarrow as pa

from clonos_py.model.errors import GraphError, UserCodeError, shown
from clonos_py.model.field_values import PLAIN, FieldError, encoded
from clonos_py.model.moments import day_values, duration_values, moment_values
from clonos_py.model.nested_values import encoded_nested
from clonos_py.model.record import Record, attribute_of, field_types, schema_of

__all__ = ["SLICE_ROWS", "UNDECODABLE", "FieldError", "decode", "decode_each", "encode"]

R = TypeVar("R", bound=Record)

UNDECODABLE = (UserCodeError, ValueError, OverflowError)
"""What a value raises that Python does not have."""
SLICE_ROWS = 8_192
"""Rows that are decoded at once: about 3 ms for seven columns."""


def decode(rows: pa.RecordBatch, record: type[R]) -> Iterator[list[R]]:
    """The rows as records, at most SLICE_ROWS in a list. Raises GraphError naming a column that is absent."""
    columns = [(_column(rows, record, name), convert) for name, convert in _converters(record)]
    for start in range(0, rows.num_rows, SLICE_ROWS):
        if not columns:
            yield [record() for _ in range(min(SLICE_ROWS, rows.num_rows - start))]
            continue
        values = [convert(column.slice(start, SLICE_ROWS)) for column, convert in columns]
        yield list(map(record, *values))


def decode_each(
    rows: pa.RecordBatch, record: type[R], failed: Callable[[int, Exception], None]
) -> Iterator[tuple[list[R], Sequence[int]]]:
    """As ``decode``, with the numbers of the rows. Rows with a value that Python does not have, such as a date in the
    year 10000, are left out, and ``failed`` is called with the number of the row and the error."""
    for start in range(0, rows.num_rows, SLICE_ROWS):
        yield _decoded_each(rows, record, range(start, min(start + SLICE_ROWS, rows.num_rows)), failed)


def _decoded_each(
    rows: pa.RecordBatch, record: type[R], numbers: range, failed: Callable[[int, Exception], None]
) -> tuple[list[R], Sequence[int]]:
    try:
        return next(decode(rows.slice(numbers.start, len(numbers)), record)), numbers
    except UNDECODABLE as error:
        if len(numbers) == 1:
            failed(numbers.start, error)
            return [], ()
    half = len(numbers) // 2
    first, second = (_decoded_each(rows, record, part, failed) for part in (numbers[:half], numbers[half:]))
    return [*first[0], *second[0]], [*first[1], *second[1]]


def encode(rows: Sequence[Any], schema: pa.Schema) -> pa.RecordBatch:
    """Records (of any class that has the fields) or dicts as a batch of ``schema``.

    Raises FieldError naming the first row and field that do not fit.
    """
    kinds = set(map(type, rows))
    columns = [_encoded(_values(rows, kinds, field.name), field) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _column(rows: pa.RecordBatch, record: type[Record], name: str) -> pa.Array[Any]:
    index = rows.schema.get_field_index(name)
    if index < 0:
        raise GraphError(f"{record.__name__}.{name}: no such column among {', '.join(rows.schema.names)}")
    return rows.column(index)


@functools.cache
def _converters(record: type[Record]) -> tuple[tuple[str, Callable[[pa.Array[Any]], list[Any]]], ...]:
    types = field_types(record).values()
    columns = schema_of(record)
    return tuple((field.name, _converter(field.type, type_)) for field, type_ in zip(columns, types, strict=True))


def _converter(type_: pa.DataType, annotation: Any) -> Callable[[pa.Array[Any]], list[Any]]:
    if pa.types.is_nested(type_):
        return functools.partial(_nested_values, list[annotation])
    if pa.types.is_decimal(type_):
        return _decimal_values
    if pa.types.is_timestamp(type_):
        return moment_values
    if pa.types.is_date(type_):
        return day_values
    return duration_values if pa.types.is_duration(type_) else _plain_values


def _plain_values(column: pa.Array[Any]) -> list[Any]:
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    return column.to_pylist()


def _decimal_values(column: pa.Array[Any]) -> list[Any]:
    values: list[Any] = column.to_numpy(zero_copy_only=False).tolist()  # three times as fast as to_pylist
    return values


def _nested_values(type_: Any, column: pa.Array[Any]) -> list[Any]:
    values: list[Any] = msgspec.convert(column.to_pylist(), type_, builtin_types=PLAIN)
    return values


def _values(rows: Sequence[Any], kinds: set[type], name: str) -> list[Any]:
    """The values of a column. ``kinds``: the classes of the rows."""
    try:
        if kinds <= {dict}:
            return list(map(itemgetter(name), rows))
        if len(attributes := {attribute_of(kind, name) for kind in kinds}) == 1:
            return list(map(attrgetter(attributes.pop() or ""), rows))
    except (KeyError, AttributeError, TypeError):
        pass
    return [_value(row, name, position) for position, row in enumerate(rows)]


def _value(row: Any, name: str, position: int) -> Any:
    if isinstance(row, dict) and name in row:
        return row[name]
    if isinstance(row, Record) and (attribute := attribute_of(type(row), name)) is not None:
        return getattr(row, attribute)
    if isinstance(row, dict | Record):
        raise FieldError(f"{type(row).__name__} has no field {name!r}", position)
    raise FieldError(f"{shown(row)} is neither a Record nor a dict", position)


def _encoded(values: list[Any], field: pa.Field[Any]) -> pa.Array[Any]:
    encode_values = encoded_nested if pa.types.is_nested(field.type) else encoded
    return encode_values(values, field, lambda row: (row, field.name))
