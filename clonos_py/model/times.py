"""Time in the engine: int64 microseconds since 1970-01-01 UTC (D17)."""

from __future__ import annotations

import functools
import re
from datetime import timedelta
from fractions import Fraction
from typing import TypeAlias

from clonos_py.model.errors import SettingError

Duration: TypeAlias = str | timedelta
"""A length of time as users write it: text such as ``"10s"``, ``"1.5 min"`` or ``"-5m"``, or a timedelta."""

MIN_TIME = -(2**63)
"""The watermark of a stream before its first watermark."""
MAX_TIME = 2**63 - 1
"""The watermark of a stream that has ended."""

_UNITS_US = {
    "us": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "min": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}
_DURATION = re.compile(r"\s*(-?\d+(?:\.\d+)?)\s*([a-z]+)\s*", re.ASCII)
_NUMBER = re.compile(r"\s*-?\d+(?:\.\d+)?\s*", re.ASCII)
_MICROSECOND = timedelta(microseconds=1)
LONGEST_US = 2**62 - 1
"""The longest duration. Windows and joins take times up to 2**62 from 1970, so no bound of theirs exceeds 64 bits."""


def micros(duration: Duration) -> int:
    """Microseconds of a duration. 0 needs no unit.

    Raises SettingError on anything else, with the remedy."""
    if isinstance(duration, str):
        found = _micros(duration)
    elif isinstance(duration, timedelta):
        found = duration // _MICROSECOND
    elif type(duration) is int and duration == 0:
        found = 0
    else:
        raise _no_duration(duration)
    if abs(found) > LONGEST_US:
        raise SettingError(f"{duration!r} is too long a duration: the longest is 146,000 years")
    return found


@functools.lru_cache(maxsize=1_024)
def _micros(text: str) -> int:
    match = _DURATION.fullmatch(text)
    if match is None or match[2] not in _UNITS_US:
        raise _no_duration(text)
    return round(Fraction(match[1]) * _UNITS_US[match[2]])


def _no_duration(found: object) -> SettingError:
    units = ", ".join(_UNITS_US)
    if isinstance(found, int | float) and not isinstance(found, bool):
        number = str(found)
    else:
        number = found.strip() if isinstance(found, str) and _NUMBER.fullmatch(found) else ""
    if number:
        return SettingError(f"{found!r} has no unit: write one of {units} after the number, such as '{number}s'")
    return SettingError(
        f"{found!r} is not a duration: write a number and one of {units}, such as '10s', or give a timedelta"
    )
