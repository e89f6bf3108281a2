"""Between record batches and rows: decodes only the columns that a Record names, encodes with the types checked.

Arrow itself would turn 1.5 into 1 and b"x" into "x" without a word; here every value must be of its field's type. What
loses nothing is converted: integers to float and decimal columns, numpy scalars, a Decimal to a float column; Decimals
with too many places are rounded half to even.

Rows have aware datetimes, in UTC. A naive one is refused, as it would be of another zone on every machine; a column
without a zone is UTC. What is finer than a microsecond, which a datetime cannot say, is cut off.

Work is done in slices, so that the interpreter lock is not held long.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime, timedelta
from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation
from operator import attrgetter, itemgetter
from typing import Any, TypeVar

import msgspec
import numpy as np
import pyarrow as pa

from clonos_py.model.decimals import EXACT
from clonos_py.model.errors import GraphError, UserCodeError
from clonos_py.model.moments import day_values, duration_values, is_naive, moment_of, moment_values
from clonos_py.model.numpy_values import plain_scalar, plain_value
from clonos_py.model.record import Record, field_types

R = TypeVar("R", bound=Record)

SLICE_ROWS = 8_192
"""Rows that are decoded at once: about 3 ms for seven columns."""

_NONE = type(None)
_KINDS: tuple[tuple[Callable[[pa.DataType], bool], tuple[type, ...], str], ...] = (
    (pa.types.is_integer, (int,), "an int"),
    (pa.types.is_floating, (float, int), "a float"),
    (pa.types.is_decimal, (Decimal, int), "a Decimal"),
    (pa.types.is_string, (str,), "a str"),
    (pa.types.is_large_string, (str,), "a str"),
    (pa.types.is_boolean, (bool,), "a bool"),
    (pa.types.is_binary, (bytes,), "bytes"),
    (pa.types.is_timestamp, (datetime,), "a datetime"),
    (pa.types.is_date, (date,), "a date"),
    (pa.types.is_duration, (timedelta,), "a timedelta"),
)
_SAID_BY_PYTHON = (pa.int64(), pa.float64(), pa.string(), pa.bool_(), pa.binary(), pa.date32(), pa.duration("us"))
"""Types of which the Python type says all."""
_BUILTIN = (bytes, Decimal, datetime, date, timedelta)
"""What nested values are made of beside numbers and text."""


class FieldError(UserCodeError):
    """A row does not fit its schema; ``row`` is its position among those that were to be encoded."""

    def __init__(self, message: str, row: int) -> None:
        super().__init__(message)
        self.row = row


def decode(rows: pa.RecordBatch, record: type[R]) -> Iterator[list[R]]:
    """The rows as records, at most SLICE_ROWS in a list. Raises GraphError naming a column that is absent."""
    columns = [(_column(rows, record, name), convert) for name, convert in _converters(record)]
    for start in range(0, rows.num_rows, SLICE_ROWS):
        if not columns:
            yield [record() for _ in range(min(SLICE_ROWS, rows.num_rows - start))]
            continue
        values = [convert(column.slice(start, SLICE_ROWS)) for column, convert in columns]
        yield list(map(record, *values))


def encode(rows: Sequence[Any], schema: pa.Schema) -> pa.RecordBatch:
    """Records (of any class that has the fields) or dicts as a batch of ``schema``.

    Raises FieldError naming the first row and field that do not fit.
    """
    return pa.RecordBatch.from_arrays([_encoded(_values(rows, field.name), field) for field in schema], schema=schema)


def _column(rows: pa.RecordBatch, record: type[Record], name: str) -> pa.Array[Any]:
    index = rows.schema.get_field_index(name)
    if index < 0:
        raise GraphError(f"{record.__name__}.{name}: no such column among {', '.join(rows.schema.names)}")
    return rows.column(index)


@functools.cache
def _converters(record: type[Record]) -> tuple[tuple[str, Callable[[pa.Array[Any]], list[Any]]], ...]:
    types = field_types(record)
    return tuple((field.name, _converter(field.type, types[field.name])) for field in record.schema())


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
    values: list[Any] = msgspec.convert(column.to_pylist(), type_, builtin_types=_BUILTIN)
    return values


def _values(rows: Sequence[Any], name: str) -> list[Any]:
    try:
        if all(kind is dict for kind in set(map(type, rows))):
            return list(map(itemgetter(name), rows))
        return list(map(attrgetter(name), rows))
    except (KeyError, AttributeError, TypeError):
        return [_value(row, name, position) for position, row in enumerate(rows)]


def _value(row: Any, name: str, position: int) -> Any:
    if isinstance(row, dict) and name in row:
        return row[name]
    if isinstance(row, Record) and hasattr(row, name):
        return getattr(row, name)
    if isinstance(row, dict | Record):
        raise FieldError(f"{type(row).__name__} has no field {name!r}", position)
    raise FieldError(f"{row!r} is neither a Record nor a dict", position)


def _encoded(values: list[Any], field: pa.Field[Any]) -> pa.Array[Any]:
    if set(map(type, values)) <= _accepted(field.type, field.nullable) and not _some_naive(values, field.type):
        column = _array(values, field.type)
        if column is not None:
            return column
    fitted = [_fitted(value, field, row) for row, value in enumerate(values)]
    column = _array(fitted, field.type)
    if column is not None:
        return column
    row = next(row for row, value in enumerate(fitted) if _array([value], field.type) is None)
    raise _misfit(values[row], field, row)


def _array(values: list[Any], type_: pa.DataType) -> pa.Array[Any] | None:
    """None if a value does not fit: it is out of range or has too many decimal places."""
    try:
        column: pa.Array[Any] = pa.array(values, type=type_)
    except (TypeError, ValueError, OverflowError):
        return None
    return column


@functools.cache
def _accepted(type_: pa.DataType, nullable: bool) -> frozenset[type]:
    kinds, _ = _kinds(type_)
    return frozenset(kinds) | {_NONE} if nullable else frozenset(kinds)


def _kinds(type_: pa.DataType) -> tuple[tuple[type, ...], str]:
    for applies, kinds, spelled in _KINDS:
        if applies(type_):
            return kinds, spelled
    return (), str(type_)


def _fitted(value: Any, field: pa.Field[Any], row: int) -> Any:
    """The value, converted where that loses nothing."""
    given = value
    try:
        value = _plain(value, field.type) if isinstance(value, np.generic) else value
    except ValueError as error:
        raise _misfit(given, field, row) from error
    if value is None or (isinstance(value, datetime) and value != value):  # pandas has NaT, which equals nothing
        if field.nullable:
            return None
        raise FieldError(f"field {field.name!r} is None but not declared '| None'", row)
    try:
        return _converted(value, field.type)
    except (TypeError, ValueError, OverflowError, InvalidOperation) as error:
        raise _misfit(given, field, row) from error


def _plain(value: np.generic, type_: pa.DataType) -> Any:
    """A ``datetime64`` has no zone, and is UTC."""
    found = plain_scalar(value)
    if isinstance(value, np.datetime64) and found is not None and pa.types.is_timestamp(type_):
        return moment_of(found)
    return found


def _misfit(value: Any, field: pa.Field[Any], row: int) -> FieldError:
    kinds, spelled = _kinds(field.type)
    declared = spelled if not kinds or field.type in _SAID_BY_PYTHON else f"{spelled} of {field.type}"
    found = f"{value!r} ({type(value).__name__})"
    if pa.types.is_timestamp(field.type) and isinstance(value, datetime) and is_naive(value):
        return FieldError(
            f"field {field.name!r} is {value!r}, which has no time zone: write datetime.now(UTC), or tzinfo=UTC for a "
            "time that is in UTC",
            row,
        )
    return FieldError(f"field {field.name!r} is {found} where {declared} is declared", row)


def _converted(value: Any, type_: pa.DataType) -> Any:
    if pa.types.is_decimal(type_) and isinstance(value, Decimal):
        return value.quantize(Decimal(1).scaleb(-type_.scale), ROUND_HALF_EVEN, EXACT)
    if pa.types.is_floating(type_) and isinstance(value, Decimal):
        return float(value)
    kinds, _ = _kinds(type_)
    if not kinds:
        return _aware(msgspec.to_builtins(value, builtin_types=_BUILTIN, enc_hook=plain_value))
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise TypeError(type(value).__name__)
    if (isinstance(value, datetime) and pa.types.is_date(type_)) or _some_naive([value], type_):
        raise TypeError(type(value).__name__)
    return value


def _some_naive(values: list[Any], type_: pa.DataType) -> bool:
    """Whether a datetime lacks the zone that its column has."""
    if not isinstance(type_, pa.TimestampType) or type_.tz is None:
        return False
    return any(value is not None and is_naive(value) for value in values)


def _aware(nested: Any) -> Any:
    """The value itself. Raises TypeError for a datetime in it that has no zone."""
    if isinstance(nested, datetime) and is_naive(nested):
        raise TypeError("datetime without a time zone")
    if isinstance(nested, list | dict):
        for part in nested.values() if isinstance(nested, dict) else nested:
            _aware(part)
    return nested
