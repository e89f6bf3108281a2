"""Time in the engine: int64 microseconds since 1970-01-01 UTC (D17)."""

from __future__ import annotations

import functools
import re

from clonos_py.model.errors import SettingError

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
_DURATION = re.compile(r"\s*(-?\d+(?:\.\d+)?)\s*([a-z]+)\s*")


@functools.lru_cache(maxsize=1_024)
def micros(duration: str | int) -> int:
    """Microseconds of a duration such as ``"10s"``, ``"1.5 min"`` or ``"-5m"``; an int is already in microseconds.

    Raises SettingError on anything else, with the list of units.
    """
    if isinstance(duration, int):
        return duration
    match = _DURATION.fullmatch(duration) if isinstance(duration, str) else None
    if match is None or match[2] not in _UNITS_US:
        raise SettingError(
            f"{duration!r} is not a duration: write a number and one of {', '.join(_UNITS_US)}, such as '10s'"
        )
    return round(float(match[1]) * _UNITS_US[match[2]])
