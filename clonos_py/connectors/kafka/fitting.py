"""Converts columns between a format's schema and the one that a job declares. Timestamps may be Instants there."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from clonos_py.columns.casting import cast
from clonos_py.connectors.written_times import fitted_times


def fitted(columns: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Converts columns to the types of a schema: timestamps to microseconds, numbers to its number types. Missing
    columns are null. Raises ValueError for values that do not fit."""
    return pa.RecordBatch.from_arrays([_fitted(columns, field) for field in schema], schema=schema)


def _fitted(columns: pa.RecordBatch, field: pa.Field[Any]) -> pa.Array[Any]:
    found: pa.Array[Any]
    if field.name not in columns.schema.names:
        if not field.nullable:
            raise ValueError(f"there is no field {field.name!r}")
        found = pa.nulls(columns.num_rows, field.type)
        return found
    found = columns.column(field.name)
    if found.null_count and not field.nullable:
        raise ValueError(f"field {field.name!r} is null, but not declared '| None'")
    return _cast(found, field)


def _cast(found: pa.Array[Any], field: pa.Field[Any]) -> pa.Array[Any]:
    """Raises ValueError (Arrow's errors are ValueErrors) for values that do not fit."""
    try:
        times = fitted_times(found, field) if pa.types.is_timestamp(found.type) else None
        if times is not None:
            return times
        if pa.types.is_int64(found.type) and pa.types.is_timestamp(field.type):
            micros = found.cast(pa.timestamp("us", field.type.tz))
            return micros.cast(field.type, safe=field.type.unit == "ns")
        if pa.types.is_date32(found.type) and pa.types.is_integer(field.type):
            found = found.cast(pa.int32())
        if not _alike(found.type, field.type):
            raise ValueError(f"field {field.name!r} is {found.type}, not {field.type}")
        made: pa.Array[Any] = cast(found, field.type)
        return made
    except pa.ArrowException as problem:
        raise ValueError(f"field {field.name!r}: {problem}") from None


def _alike(found: pa.DataType, target: pa.DataType) -> bool:
    """Whether types are similar enough to convert. Arrow alone would also convert numbers to text."""
    if pa.types.is_null(found) or found.id == target.id:
        return True
    return any(
        kind(found) and kind(target) for kind in (_is_number, _is_text, pa.types.is_temporal, _is_bytes, _is_list)
    )


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_dictionary(kind)


def _is_bytes(kind: pa.DataType) -> bool:
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)


def _is_list(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind)


def fits(found: pa.DataType, field: pa.Field[Any]) -> bool:
    """Whether values of a type can be converted to those of a column."""
    try:
        _cast(pa.array([], found), field)
    except ValueError:
        return False
    return True
