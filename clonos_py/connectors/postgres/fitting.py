"""Which columns of rows and which columns of a table fit each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from clonos_py.connectors.postgres.catalog import TableColumn

_INTEGERS = frozenset(["int2", "int4", "int8"])
_NUMBERS = _INTEGERS | {"numeric", "float4", "float8"}
_TEXTS = frozenset(["text", "varchar", "bpchar", "name", "citext"])
_JSON = frozenset(["json", "jsonb"])
_NO_TEXT = frozenset(["bytea"])
"""Its text is an encoding of its own."""

_KINDS: tuple[tuple[Callable[[pa.DataType], bool], frozenset[str], str], ...] = (
    (pa.types.is_boolean, frozenset(["bool"]), "boolean"),
    (pa.types.is_integer, _NUMBERS, "bigint"),
    (pa.types.is_floating, frozenset(["float4", "float8", "numeric"]), "double precision"),
    (pa.types.is_decimal, frozenset(["numeric"]), "numeric"),
    (pa.types.is_date, frozenset(["date"]), "date"),
    (pa.types.is_time, frozenset(["time"]), "time"),
    (pa.types.is_duration, frozenset(["interval"]), "interval"),
    (pa.types.is_struct, _JSON, "jsonb"),
)
"""Of a column of rows: the types of the table that hold it, and the best of these."""


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def _is_bytes(kind: pa.DataType) -> bool:
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind)


def is_list(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind)


def best_type(kind: Any) -> str | None:
    """The type for a column of the table that takes such values; None if there is none."""
    if is_list(kind):
        inner = best_type(kind.value_type)
        flat = not is_list(kind.value_type) and not pa.types.is_struct(kind.value_type)
        return f"{inner}[]" if inner is not None and flat else "jsonb"
    if _is_text(kind):
        return "text"
    if _is_bytes(kind):
        return "bytea"
    if pa.types.is_timestamp(kind):
        return "timestamp without time zone" if kind.tz is None else "timestamp with time zone"
    return next((best for accepts, _, best in _KINDS if accepts(kind)), None)


def fits(kind: Any, column: TableColumn) -> bool:
    """Whether values of this type have the same meaning in the column. Single values may still be too large for it."""
    if is_list(kind) and not column.array:
        return column.base in _JSON
    if is_list(kind):
        return (
            not is_list(kind.value_type) and not pa.types.is_struct(kind.value_type) and _holds(kind.value_type, column)
        )
    return not column.array and _holds(kind, column)


def _holds(kind: pa.DataType, column: TableColumn) -> bool:
    if _is_text(kind):
        return column.base in _TEXTS or (column.category in "AEIUX" and column.base not in _NO_TEXT)
    if _is_bytes(kind):
        return column.base == "bytea"
    if pa.types.is_timestamp(kind):
        return column.base == ("timestamp" if kind.tz is None else "timestamptz")
    return any(accepts(kind) and column.base in held for accepts, held, _ in _KINDS)
