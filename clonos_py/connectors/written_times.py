"""Times in text formats: the types in which they are written, and the conversion in both directions.

A ``datetime`` is ISO 8601 text or, with ``Epoch``, a number; a ``date`` and a ``timedelta`` are ISO 8601 text. Times in
lists and inner records are left to the format.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa

from clonos_py.columns.times import (
    EPOCH_NUMBER,
    MOMENT,
    date_from_iso,
    duration_from_iso,
    duration_to_iso,
    from_epoch,
    from_iso,
    instants,
    moments,
    to_epoch,
    to_iso,
    to_plain_epoch,
)
from clonos_py.model.time_formats import epoch_unit


def is_written_otherwise(field: pa.Field[Any]) -> bool:
    """Whether text formats write a column with another type."""
    return pa.types.is_timestamp(field.type) or pa.types.is_date(field.type) or pa.types.is_duration(field.type)


def as_written(schema: pa.Schema) -> pa.Schema:
    """The schema with times as JSON has them: text, or numbers with a fraction."""
    return pa.schema([_written(field) if is_written_otherwise(field) else field for field in schema])


def as_text(schema: pa.Schema) -> pa.Schema:
    """The schema with all times as text, as in CSV."""
    return pa.schema([_text(field) if is_written_otherwise(field) else field for field in schema])


def read_times(column: pa.Array[Any], field: pa.Field[Any]) -> pa.Array[Any]:
    """Converts a column with a type of ``as_written`` or ``as_text``, or of integers, to the times of ``field``; other
    columns stay unchanged. Raises ValueError naming column and value."""
    if not is_written_otherwise(field):
        return column
    try:
        return _read(column, field)
    except pa.ArrowException:
        raise ValueError(_reason(column, field)) from None


def fitted_times(column: pa.Array[Any], field: pa.Field[Any]) -> pa.Array[Any] | None:
    """Converts a column of a typed format to the times of ``field``: times of any unit and zone, and text and numbers
    if the field is declared so; an Instant also takes times. None if neither is a time. Raises ValueError naming column
    and value."""
    timed = is_written_otherwise(field)
    found: pa.Array[Any]
    if not timed:
        if not (pa.types.is_timestamp(column.type) and pa.types.is_int64(field.type)):
            return None
        found = column.view(pa.int64()) if column.type.unit == "us" else instants(column)
        return found
    if column.type == field.type:
        return column
    if pa.types.is_timestamp(column.type) and field.type == MOMENT:
        found = moments(column)
        return found
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    number = pa.types.is_integer(column.type) or pa.types.is_decimal(column.type)
    if number and epoch_unit(field) is not None:
        return read_times(column.cast(EPOCH_NUMBER) if pa.types.is_decimal(column.type) else column, field)
    if pa.types.is_string(column.type) and epoch_unit(field) is None:
        return read_times(column, field)
    if number:
        raise ValueError(f"field {field.name!r} is {column.type}, {what_is_expected(field)}")
    return None


def written_times(rows: pa.Table | pa.RecordBatch, numbers_exact: bool = False) -> pa.Table:
    """The rows with times as text and numbers. ``numbers_exact``: seconds and milliseconds are decimals; otherwise
    integers, or floats if one of them has a fraction."""
    table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
    for number, field in enumerate(table.schema):
        if is_written_otherwise(field):
            column = _shown(table.column(number).combine_chunks(), field, numbers_exact)
            table = table.set_column(number, pa.field(field.name, column.type, field.nullable), column)
    return table


def written_schema(schema: pa.Schema) -> pa.Schema:
    """The schema of ``written_times`` with exact numbers."""
    return written_times(schema.empty_table(), numbers_exact=True).schema


def _text(field: pa.Field[Any]) -> pa.Field[Any]:
    return pa.field(field.name, pa.string(), field.nullable)


def _written(field: pa.Field[Any]) -> pa.Field[Any]:
    return _text(field) if epoch_unit(field) is None else pa.field(field.name, EPOCH_NUMBER, field.nullable)


def _read(column: pa.Array[Any], field: pa.Field[Any]) -> pa.Array[Any]:
    found: pa.Array[Any]
    unit = epoch_unit(field)
    if pa.types.is_date(field.type):
        found = date_from_iso(column).cast(field.type)
    elif pa.types.is_duration(field.type):
        found = duration_from_iso(column).cast(field.type)
    elif unit is None:
        found = from_iso(column).cast(field.type)
    else:
        numbers = column.cast(EPOCH_NUMBER) if pa.types.is_string(column.type) else column
        found = from_epoch(numbers, unit).cast(field.type)
    return found


def _reason(column: pa.Array[Any], field: pa.Field[Any]) -> str:
    """Names the first value that is no time, found by bisection: not all values are converted one by one."""
    first, behind = 0, len(column)
    while behind - first > 1:
        middle = (first + behind) // 2
        try:
            _read(column.slice(first, middle - first), field)
            first = middle
        except pa.ArrowException:
            behind = middle
    return f"field {field.name!r} is {_shown_value(column[first].as_py())}, {what_is_expected(field)}"


def _shown_value(value: Any) -> str:
    return f"{value.normalize():f}" if isinstance(value, Decimal) else repr(value)


def what_is_expected(field: pa.Field[Any]) -> str:
    """The expected value and the remedy, for an error message."""
    unit = epoch_unit(field)
    if unit is not None:
        return f"no time in {unit} since 1970; for text declare Annotated[datetime, Iso8601()]"
    if pa.types.is_date(field.type):
        return "no ISO 8601 date, such as 2026-01-31"
    if pa.types.is_duration(field.type):
        return "no ISO 8601 duration, such as PT1M30S"
    return (
        "no ISO 8601 time, such as 2026-01-31T09:30:00Z; for numbers declare Annotated[datetime, Epoch('ms')], for "
        "other text a str and use col(...).strptime(...)"
    )


def _shown(column: pa.Array[Any], field: pa.Field[Any], exact: bool) -> Any:
    unit = epoch_unit(field)
    if pa.types.is_date(field.type):
        return column.cast(pa.date32()).cast(pa.string())
    if pa.types.is_duration(field.type):
        return duration_to_iso(column)
    if unit is None:
        return to_iso(column)
    return to_epoch(column, unit) if exact else to_plain_epoch(column, unit)
