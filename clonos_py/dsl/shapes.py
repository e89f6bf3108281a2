"""Assignment of columns to the fields of a Record: by name, with matching types.

A field takes a column of its own type, a narrower integer or float, a decimal of the same scale, or times of a coarser
unit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from clonos_py.model.errors import GraphError


def listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


def assignable(column: pa.DataType, field: pa.DataType) -> bool:
    """Whether the values of a column, except those too large, are values of a field."""
    kinds = (pa.types.is_signed_integer, pa.types.is_unsigned_integer, pa.types.is_floating)
    if any(kind(column) and kind(field) for kind in kinds):
        return column.bit_width <= field.bit_width
    if pa.types.is_decimal(column) and pa.types.is_decimal(field):
        return bool(column.scale == field.scale)
    if isinstance(column, pa.TimestampType) and isinstance(field, pa.TimestampType):
        return (column.tz is None) == (field.tz is None) and _at_least_as_fine(field.unit, column.unit)
    if isinstance(column, pa.DurationType) and isinstance(field, pa.DurationType):
        return _at_least_as_fine(field.unit, column.unit)
    return bool(column == field)


def _at_least_as_fine(unit: str, other: str) -> bool:
    units = ("s", "ms", "us", "ns")
    return units.index(unit) >= units.index(other)


def readable(column: pa.DataType, field: pa.DataType) -> bool:
    """Whether a function can take the values: datetimes and timedeltas may come from columns of any unit."""
    kinds = (pa.types.is_timestamp, pa.types.is_duration)
    return assignable(column, field) or any(kind(column) and kind(field) for kind in kinds)


def check_columns(names: Iterable[object], schema: pa.Schema) -> None:
    """Raises GraphError for what names no column."""
    for name in names:
        if not isinstance(name, str):
            raise GraphError(f"{name} is not a column name; compute it first: .with_columns(name=...)")
        if name not in schema.names:
            raise GraphError(f"no column {name!r}; there are {listed(schema.names)}")


def refuse_nested(what: str, names: Iterable[str], schema: pa.Schema) -> None:
    """Raises GraphError for a column whose values cannot be compared. ``what``: the role of these, such as key."""
    for name in names:
        if pa.types.is_nested(schema.field(name).type):
            raise GraphError(f"{what} {name!r} is a list or struct, which cannot be compared; name other columns")


def check_row(row: pa.Schema, schema: pa.Schema, name: str) -> None:
    """Raises GraphError for columns of a row class that the stream lacks or has in another type."""
    for field in row:
        if schema.get_field_index(field.name) < 0:
            raise GraphError(f"{name} asks for column {field.name!r}; there are {listed(schema.names)}")
        found = schema.field(field.name).type
        if not readable(found, field.type):
            raise GraphError(f"{name}.{field.name} is {field.type}, the stream's column is {found}")


def filled(
    target: pa.Schema | None, available: Mapping[str, pa.Field[Any]], must_use: Iterable[str], name: str
) -> pa.Schema:
    """The output schema: all available columns, or those that the fields of ``target`` name.

    Raises GraphError for a field without a column, a type that does not fit, or a column of ``must_use`` for which the
    target has no field.
    """
    if target is None:
        return pa.schema(list(available.values()))
    for column in must_use:
        if target.get_field_index(column) < 0:
            raise GraphError(f"{name} has no field {column!r}; its fields are {listed(target.names)}")
    for field in target:
        if field.name not in available:
            raise GraphError(f"{name}.{field.name}: nothing of that name; there are {listed(available)}")
        found = available[field.name].type
        if not assignable(found, field.type):
            raise GraphError(f"{name}.{field.name} is {field.type}, but what fills it is {found}")
    return target


def same_columns(first: pa.Schema, second: pa.Schema) -> str | None:
    """The first difference between two schemas that should have the same columns in order; None if they agree."""
    if first.names != second.names:
        return f"one has the columns {listed(first.names)}, the other {listed(second.names)}"
    for left, right in zip(first, second, strict=True):
        if left.type != right.type:
            return f"column {left.name!r} is {left.type} in one, {right.type} in the other"
    return None
