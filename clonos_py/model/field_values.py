"""Encodes the values of one field as a column, with type checks.

Values are converted if nothing is lost: integers to float and decimal columns, numpy scalars, a Decimal to a float
column. Decimals with too many places are rounded half to even.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from clonos_py.model.decimals import EXACT
from clonos_py.model.errors import UserCodeError, shown
from clonos_py.model.moments import is_naive, moment_of
from clonos_py.model.numpy_values import plain_scalar, plain_value

Place = Callable[[int], tuple[int, str]]
"""Returns the place of the value at an index: its row and the path to it, such as ``lines[2].price``."""

_NONE = type(None)
_SHOWN_MAX = 200
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
"""Types that the Python type determines completely."""
PLAIN = (bytes, Decimal, datetime, date, timedelta)
"""The types of nested values, besides numbers and text."""


class FieldError(UserCodeError):
    """A row does not fit its schema. ``row``: its position among the rows to be encoded."""

    def __init__(self, message: str, row: int) -> None:
        super().__init__(message)
        self.row = row


def encoded(values: list[Any], field: pa.Field[Any], place: Place) -> pa.Array[Any]:
    """The values as a column of the field's type. Raises FieldError naming the first that does not fit."""
    if set(map(type, values)) <= _accepted(field.type, field.nullable) and not _some_naive(values, field.type):
        column = _array(values, field.type)
        if column is not None:
            return column
    fitted = [_fitted(value, field, index, place) for index, value in enumerate(values)]
    column = _array(fitted, field.type)
    if column is not None:
        return column
    index = next(index for index, value in enumerate(fitted) if _array([value], field.type) is None)
    raise misfit(values[index], field.type, place(index))


def _array(values: list[Any], type_: pa.DataType) -> pa.Array[Any] | None:
    """The values as a column; None if a value is out of range or has too many decimal places."""
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


def _fitted(value: Any, field: pa.Field[Any], index: int, place: Place) -> Any:
    """The value, converted if nothing is lost. Raises FieldError."""
    given = value
    try:
        value = _plain(value, field.type) if isinstance(value, np.generic) else value
    except ValueError as error:
        raise misfit(given, field.type, place(index)) from error
    if value is None or (isinstance(value, datetime) and value != value):  # pandas has NaT, which equals nothing
        if field.nullable:
            return None
        raise absent(place(index))
    try:
        return _converted(value, field.type)
    except (TypeError, ValueError, OverflowError, InvalidOperation) as error:
        raise misfit(given, field.type, place(index)) from error


def _plain(value: np.generic, type_: pa.DataType) -> Any:
    """A numpy scalar as a plain value. A ``datetime64`` has no zone, and counts as UTC."""
    found = plain_scalar(value)
    if isinstance(value, np.datetime64) and found is not None and pa.types.is_timestamp(type_):
        return moment_of(found)
    return found


def absent(place: tuple[int, str]) -> FieldError:
    """The error for a None where a value is required."""
    row, path = place
    return FieldError(f"field {path!r} is None but not declared '| None'", row)


def misfit(value: Any, type_: pa.DataType, place: tuple[int, str]) -> FieldError:
    """The error for a value that does not have a type."""
    row, path = place
    if pa.types.is_timestamp(type_) and isinstance(value, datetime) and is_naive(value):
        return FieldError(
            f"field {path!r} is {_shown(value)}, which has no time zone: write datetime.now(UTC), or tzinfo=UTC for a "
            "time that is in UTC",
            row,
        )
    if (why := _why(value, type_)) is not None:
        return FieldError(f"field {path!r} is {_shown(value)}, {why}", row)
    kinds, spelled = _kinds(type_)
    declared = spelled if not kinds or type_ in _SAID_BY_PYTHON else f"{spelled} of {type_}"
    return FieldError(f"field {path!r} is {_shown(value)} ({type(value).__name__}) where {declared} is declared", row)


def _why(value: Any, type_: pa.DataType) -> str | None:
    """Why a value of the right Python type is no value of a column; None if its type is wrong."""
    plain = value.item() if isinstance(value, np.generic) else value
    kinds, _ = _kinds(type_)
    if isinstance(plain, bool) or not isinstance(plain, kinds or ()):
        return None
    if isinstance(plain, str):
        return "which has half of a surrogate pair and so is no text: write it with errors='replace'"
    if pa.types.is_integer(type_):
        bits, signed = type_.bit_width, pa.types.is_signed_integer(type_)
        least, greatest = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
        return f"which is out of range: {type_} holds {least} to {greatest}"
    if pa.types.is_floating(type_):
        return f"which no float ({type_}) holds exactly: float(...) rounds it"
    if pa.types.is_decimal(type_):
        finite = not isinstance(plain, Decimal) or plain.is_finite()
        return f"which has more digits than {type_} holds" if finite else f"and {type_} holds finite numbers only"
    if isinstance(plain, datetime | date | timedelta) and not (isinstance(plain, datetime) and pa.types.is_date(type_)):
        return f"which {type_} cannot hold: it is out of range, or finer than the unit"
    return None


def _shown(value: Any) -> str:
    text = shown(value)
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}..."


def _converted(value: Any, type_: pa.DataType) -> Any:
    if pa.types.is_decimal(type_) and isinstance(value, Decimal):
        return value.quantize(Decimal(1).scaleb(-type_.scale), ROUND_HALF_EVEN, EXACT)
    if pa.types.is_floating(type_) and isinstance(value, Decimal):
        return float(value)
    kinds, _ = _kinds(type_)
    if not kinds:
        return msgspec.to_builtins(value, builtin_types=PLAIN, enc_hook=plain_value)
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise TypeError(type(value).__name__)
    if (isinstance(value, datetime) and pa.types.is_date(type_)) or _some_naive([value], type_):
        raise TypeError(type(value).__name__)
    return value


def _some_naive(values: list[Any], type_: pa.DataType) -> bool:
    """Whether a datetime has no zone although its column has one."""
    if not isinstance(type_, pa.TimestampType) or type_.tz is None:
        return False
    return any(value is not None and is_naive(value) for value in values)
