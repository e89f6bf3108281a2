"""Plain values as Arrow scalars: which type a literal has, alone and beside a column.

A whole number beside a narrower integer, a decimal or a float takes that type if it fits; a float beside a decimal is
read as the decimal it is written as (``price * 0.908`` stays exact, as in SQL); moments and durations become
microseconds.
"""

from __future__ import annotations

import types
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, cast

import pyarrow as pa

from clonos_py.model.errors import GraphError
from clonos_py.model.record import Record

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def column_type(annotation: object) -> pa.DataType:
    """The Arrow type of a Python type, of Instant or Money, or itself. Raises GraphError where there is none."""
    if isinstance(annotation, pa.DataType):
        return annotation
    members = {"__annotations__": {"value": annotation}}
    holder = cast("type[Record]", types.new_class("Column", (Record,), {}, lambda body: body.update(members)))
    found: pa.DataType = holder.schema().field("value").type
    return found


def natural(value: object) -> pa.Scalar[Any]:
    """A plain value by itself. Raises GraphError for what no column can hold."""
    try:
        return cast("pa.Scalar[Any]", pa.scalar(_plain(value)))
    except (pa.ArrowException, OverflowError) as error:
        raise GraphError(f"{value!r} cannot be a value of a column: {error}") from error


def fitted(value: object, beside: pa.DataType, compared: bool) -> pa.Scalar[Any]:
    """A plain value as it is meant beside a column of a type: of that very type where it fits.

    Beside a decimal that it is not compared to, it keeps the precision it is written with: products stay small.
    """
    if value is None:
        return pa.scalar(None, beside)
    plain = _plain(value)
    if pa.types.is_decimal(beside) and isinstance(plain, int | float | Decimal) and not isinstance(plain, bool):
        plain = plain if isinstance(plain, Decimal) else Decimal(repr(plain))
        if not compared:
            return natural(plain)
    if isinstance(plain, bool) != pa.types.is_boolean(beside) or isinstance(plain, str) != _is_text(beside):
        return natural(plain)
    if isinstance(plain, float | Decimal) and not pa.types.is_float64(beside):
        return natural(plain)
    try:
        return pa.scalar(plain, beside)
    except (pa.ArrowException, OverflowError, TypeError):
        return natural(plain)


def _is_text(type_: pa.DataType) -> bool:
    return pa.types.is_string(type_) or pa.types.is_large_string(type_)


def _plain(value: object) -> Any:
    if isinstance(value, timedelta):
        return value // _MICROSECOND
    if not isinstance(value, datetime):
        return value
    if value.tzinfo is None:
        raise GraphError(f"{value!r} has no time zone: an instant is UTC, write tzinfo=timezone.utc")
    return (value - _EPOCH) // _MICROSECOND
