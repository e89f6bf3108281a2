"""Plain values as Arrow scalars: the type of a literal, alone and beside a column.

A whole number beside a narrower integer, a decimal or a float takes that type if it fits. A float beside a decimal
becomes the decimal as it is written (``price * 0.908`` stays exact, as in SQL). Datetimes and timedeltas beside whole
numbers, such as an Instant, become microseconds; otherwise they are timestamps and durations. A date beside a datetime
is its midnight, UTC.
"""

from __future__ import annotations

import types
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, cast

import pyarrow as pa

from clonos_py.columns.times import DURATION, MOMENT
from clonos_py.model.errors import GraphError
from clonos_py.model.moments import is_naive
from clonos_py.model.record import Record, schema_of

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def column_type(annotation: object) -> pa.DataType:
    """The Arrow type of a Python type, of Instant or Money; an Arrow type is returned unchanged. Raises GraphError for
    any other annotation."""
    if isinstance(annotation, pa.DataType):
        return annotation
    members = {"__annotations__": {"value": annotation}}
    holder = cast("type[Record]", types.new_class("Column", (Record,), {}, lambda body: body.update(members)))
    found: pa.DataType = schema_of(holder).field("value").type
    return found


def natural(value: object) -> pa.Scalar[Any]:
    """A plain value in its own type. Raises GraphError for a value that no column can hold."""
    try:
        if isinstance(value, timedelta):
            return pa.scalar(value, DURATION)
        if isinstance(value, datetime):
            return pa.scalar(_aware(value), MOMENT)
        plain: Any = value
        return cast("pa.Scalar[Any]", pa.scalar(plain))
    except (pa.ArrowException, OverflowError) as error:
        too_large = isinstance(value, int)
        reason = "it does not fit into 64 bits; write a float or a Decimal" if too_large else error
        raise GraphError(f"{value!r} cannot be a value of a column: {reason}") from error


def fitted(value: object, beside: pa.DataType, compared: bool) -> pa.Scalar[Any]:
    """A plain value beside a column of type ``beside``: of that type if it fits.

    Beside a decimal it keeps its own precision unless the two are compared, so that the types of products stay small.
    """
    if value is None:
        return pa.scalar(None, beside)
    if isinstance(value, date | timedelta) or pa.types.is_temporal(beside):
        return _fitted_time(value, beside)
    plain: Any = value
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


def _fitted_time(value: object, beside: pa.DataType) -> pa.Scalar[Any]:
    """Converts times to the unit of the column; numbers and text beside times have no unit and stay unchanged."""
    if isinstance(value, timedelta):
        return _of_unit(value // _MICROSECOND, natural(value), beside)
    if isinstance(value, datetime):
        micros = (_aware(value) - _EPOCH) // _MICROSECOND
        local = isinstance(beside, pa.TimestampType) and beside.tz is None
        return _of_unit(micros, natural(value).cast(pa.timestamp("us")) if local else natural(value), beside)
    if isinstance(value, date) and (pa.types.is_integer(beside) or pa.types.is_timestamp(beside)):
        return _fitted_time(datetime.combine(value, time(), UTC), beside)
    return natural(value)


def _of_unit(micros: int, value: pa.Scalar[Any], beside: pa.DataType) -> pa.Scalar[Any]:
    """Microseconds beside whole numbers. Beside times of another unit it takes that unit if the conversion is exact."""
    if pa.types.is_integer(beside):
        return pa.scalar(micros, pa.int64())
    if beside.id != value.type.id:
        return value
    try:
        return value.cast(beside)
    except pa.ArrowException:
        return value


def _aware(moment: datetime) -> datetime:
    if is_naive(moment):
        raise GraphError(f"{moment!r} has no time zone: an instant is UTC, write tzinfo=timezone.utc")
    return moment
