"""Conversion of time columns: from text and numbers, to text, and between units, without work per row in Python.

All results are in microseconds. Finer times are rounded down, and text without a zone is UTC.
"""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from clonos_py.columns.views import Column, fixed, valid
from clonos_py.model.time_formats import EpochUnit

MOMENT = pa.timestamp("us", "UTC")
DURATION = pa.duration("us")
EPOCH_NUMBER = pa.decimal128(38, 9)
"""The type in which epoch numbers are read: they may have a fraction, and a float cannot hold nanoseconds."""

_FRACTION = {"s": 0, "ms": 3, "us": 6, "ns": 9}
"""The decimal places of a second that each unit has."""
_SECOND_US = 1_000_000
_EXACT_FLOAT_US = 2**33 * _SECOND_US - _SECOND_US
"""Below this, floats of seconds and milliseconds are less than a microsecond apart."""
_ZONE = r"[Tt ].*([Zz]|[+-]\d\d(:?\d\d)?)$"
_DURATION = (
    r"^(?P<sign>[+-]?)P(?:(?P<d>\d{1,9})D)?(?:T(?:(?P<h>\d{1,9})H)?(?:(?P<m>\d{1,9})M)?"
    r"(?:(?P<s>\d{1,12})(?:\.(?P<f>\d{1,9}))?S)?)?$"
)
_PARTS_S = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}


def moments(column: Any) -> Any:
    """Converts timestamps of any unit, with or without a zone, and dates to ``MOMENT``. Raises pa.ArrowInvalid for
    times that 64 bits of microseconds cannot hold."""
    if column.type == MOMENT:
        return column
    if pa.types.is_timestamp(column.type) and column.type.unit == "ns":
        column = pc.floor_temporal(column, unit="microsecond")
    return column.cast(pa.timestamp("us")).cast(MOMENT)


def instants(column: Any) -> Any:
    """Converts times of any type to int64 microseconds UTC; int64 stays as it is."""
    return column if column.type == pa.int64() else moments(column).cast(pa.int64())


def from_epoch(numbers: Any, unit: EpochUnit) -> Any:
    """Converts epoch numbers, integers or ``EPOCH_NUMBER``, to ``MOMENT``. Raises pa.ArrowInvalid outside the years 1
    to 9999."""
    return _of_a_datetime(_micros_from(numbers, unit).cast(MOMENT))


def _micros_from(numbers: Any, unit: EpochUnit) -> Any:
    if pa.types.is_decimal(numbers.type):
        micros = pc.floor(numbers.view(pa.decimal128(38, _FRACTION[unit] + 3)))
        return micros.cast(pa.decimal128(38, 0)).cast(pa.int64())
    whole = numbers.cast(pa.int64())
    if unit == "ns":
        return _floored(whole, 1_000)
    return pc.multiply_checked(whole, pa.scalar(10 ** (6 - _FRACTION[unit]), pa.int64()))


def to_epoch(column: Any, unit: EpochUnit) -> Any:
    """Converts timestamps to epoch numbers: microseconds and nanoseconds as int64, other units as decimals."""
    micros = moments(column).cast(pa.int64())
    if unit == "us":
        return micros
    if unit == "ns":
        return pc.multiply_checked(micros, pa.scalar(1_000, pa.int64()))
    return micros.cast(pa.decimal128(38, 0)).view(pa.decimal128(38, 6 - _FRACTION[unit]))


def to_plain_epoch(column: Any, unit: EpochUnit) -> Any:
    """As ``to_epoch``, but as integers or, if one has a fraction, as floats. Floats of seconds and milliseconds hold
    microseconds exactly from the year 1728 to 2241. Beyond that they are decimals, as for ``to_epoch``."""
    if unit in ("us", "ns"):
        return to_epoch(column, unit)
    micros, weight, known = moments(column).cast(pa.int64()), 10 ** (6 - _FRACTION[unit]), valid(column)
    values = fixed(micros if known is None else micros.fill_null(0))
    whole, rest = np.divmod(values, weight)
    if not rest.any():
        return pa.array(whole, mask=None if known is None else ~known)
    if int(np.abs(whole).max()) >= _EXACT_FLOAT_US // weight:
        return to_epoch(column, unit)
    return pa.array(values / weight, mask=None if known is None else ~known)


def date_from_iso(text: Any) -> Any:
    """Parses ISO 8601 dates as date32. Raises pa.ArrowInvalid for any other text, and outside the years 1 to 9999."""
    dates = text.cast(pa.date32())
    if not _all_between(date.min, date.max, dates):
        raise pa.ArrowInvalid(f"one of {len(dates)} dates is outside of the years 1 to 9999")
    return dates


def from_iso(text: Any) -> Any:
    """Parses ISO 8601 text as ``MOMENT``. Raises pa.ArrowInvalid for any other text, and if its zone moves it out of
    the years 1 to 9999."""
    return _of_a_datetime(_moments_from(text))


def _moments_from(text: Any) -> Any:
    shortened = pc.replace_substring_regex(text, r"([.,]\d{6})\d+", r"\1") if _has(text, r"[.,]\d{7}") else text
    zoned = pc.match_substring_regex(shortened, _ZONE)
    if pc.all(zoned, min_count=0).as_py():
        return shortened.cast(MOMENT)
    if not pc.any(zoned, min_count=0).as_py():
        return shortened.cast(pa.timestamp("us")).cast(MOMENT)
    absent: Any = pa.scalar(None, pa.string())
    first = pc.if_else(zoned, shortened, absent).cast(MOMENT)
    other = pc.if_else(zoned, absent, shortened).cast(pa.timestamp("us")).cast(MOMENT)
    return pc.if_else(zoned, first, other)


def to_iso(column: Any) -> Any:
    """Formats timestamps as ISO 8601 text: ``2026-01-31T09:30:00Z``, with six decimal places if there is a fraction."""
    times = moments(column)
    if isinstance(times, pa.Scalar):
        return to_iso(pa.array([times.as_py()], MOMENT))[0]
    whole = fixed(times) % _SECOND_US == 0
    text = (times.cast(pa.timestamp("s", "UTC"), safe=False) if whole.all() else times).cast(pa.string())
    text = pc.replace_substring(text, " ", "T", max_replacements=1)
    return text if whole.all() or not whole.any() else pc.replace_substring(text, ".000000Z", "Z")


def duration_from_iso(text: Any) -> Any:
    """Parses ISO 8601 durations of days, hours, minutes and seconds, such as ``PT1M30.5S``, as ``DURATION``. Raises
    pa.ArrowInvalid if a text is no duration."""
    parts: Any = pc.extract_regex(text, _DURATION)
    malformed = pc.or_(pc.and_(pc.is_null(parts), pc.is_valid(text)), pc.ends_with(text, "P"))
    if pc.any(pc.or_(malformed, pc.ends_with(text, "T")), min_count=0).as_py():
        raise pa.ArrowInvalid(f"one of {len(text)} texts is not an ISO 8601 duration")
    seconds: Any = pa.scalar(0, pa.int64())
    for name, weight in _PARTS_S.items():
        seconds = pc.add_checked(seconds, pc.multiply_checked(_number(parts, name), pa.scalar(weight, pa.int64())))
    digits = pc.utf8_slice_codeunits(pc.utf8_rpad(pc.struct_field(parts, "f"), 6, "0"), 0, 6)
    micros = pc.add_checked(pc.multiply_checked(seconds, pa.scalar(_SECOND_US, pa.int64())), digits.cast(pa.int64()))
    negative = pc.equal(pc.struct_field(parts, "sign"), pa.scalar("-"))
    return pc.if_else(negative, pc.negate(micros), micros).cast(DURATION)


def duration_to_iso(column: Any) -> Any:
    """Formats durations as ISO 8601 text, in seconds: ``PT90.5S``, ``-PT1S``."""
    micros = column.cast(DURATION, safe=column.type.unit != "ns").cast(pa.int64())
    seconds = micros.cast(pa.decimal128(38, 0)).view(pa.decimal128(38, 6))
    number = pc.replace_substring_regex(pc.abs(seconds).cast(pa.string()), r"\.?0*$", "")
    negative = pc.less(micros, pa.scalar(0, pa.int64()))
    sign = pc.if_else(negative, pa.scalar("-PT"), pa.scalar("PT"))
    return pc.binary_join_element_wise(sign, number, pa.scalar("S"), pa.scalar(""))


def extent(column: Column) -> tuple[int, int] | None:
    """The earliest and the latest of some times, in microseconds; None if all are null."""
    times = instants(column.drop_null() if column.null_count else column)
    values = fixed(times)
    return (int(values.min()), int(values.max())) if len(values) else None


def _of_a_datetime(times: Any) -> Any:
    """The times. Raises pa.ArrowInvalid outside the range of datetime, as their text could not be read back."""
    if not _all_between(datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC), times):
        raise pa.ArrowInvalid(f"one of {len(times)} times is outside of the years 1 to 9999")
    return times


def _all_between(first: date, last: date, times: Any) -> bool:
    """Whether no value is outside of the range; null is not."""
    outside = pc.or_(pc.less(times, pa.scalar(first, times.type)), pc.greater(times, pa.scalar(last, times.type)))
    return not pc.any(outside, min_count=0).as_py()


def _number(parts: Any, name: str) -> Any:
    """The integer in a group of the pattern; 0 for an empty group."""
    text = pc.struct_field(parts, name)
    return pc.if_else(pc.equal(text, pa.scalar("")), pa.scalar("0"), text).cast(pa.int64())


def _has(text: Any, pattern: str) -> bool:
    found: bool = pc.any(pc.match_substring_regex(text, pattern), min_count=0).as_py()
    return found


def _floored(numbers: Any, by: int) -> Any:
    """The quotients, rounded down."""
    known = valid(numbers)
    found = np.floor_divide(fixed(numbers), by)
    return pa.array(found, pa.int64(), mask=None if known is None else ~known)
