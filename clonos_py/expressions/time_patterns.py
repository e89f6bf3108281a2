"""Translates ``strptime`` patterns of Python for a parser that requires all parts of a time."""

from __future__ import annotations

import functools
import re
from typing import NamedTuple

KNOWN = ("%Y", "%y", "%m", "%b", "%B", "%d", "%j", "%H", "%I", "%p", "%M", "%S", ".%f", "%z", "%a", "%A", "%%")
"""Directives that the column parser reads as Python does."""
WRITTEN = tuple(f"%{letter}" for letter in "AaBbCcDdeFfGgHhIjMmnpRrSTtUuVWwXxYyZz%")
"""Directives that are written as Python writes them."""
_DIRECTIVE = re.compile(r"\.%f|%.?", re.DOTALL)
_YEARS, _MONTHS = {"%Y", "%y"}, {"%m", "%b", "%B"}


class TimePattern(NamedTuple):
    """``spelled``: the parser's pattern; ``rest``: text to append to each value, for missing parts."""

    spelled: str
    rest: str


def check_written(pattern: str) -> None:
    """Raises ValueError for a directive of ``strftime`` that is unknown."""
    for found in re.findall("%.?", pattern, re.DOTALL):
        if found not in WRITTEN:
            raise ValueError(f"{found} is not among its directives, which are {' '.join(WRITTEN)}")


@functools.cache
def around_microseconds(pattern: str) -> tuple[str, ...]:
    """The parts of a pattern before, between and after ``%f``."""
    parts = [""]
    for piece in re.findall("%.|[^%]+", pattern, re.DOTALL):
        if piece == "%f":
            parts.append("")
        else:
            parts[-1] += piece
    return tuple(parts)


@functools.cache
def time_pattern(pattern: str) -> TimePattern:
    """Translates a pattern. Parts that it lacks have their least value, as in Python: the first of the month, midnight.
    Raises ValueError for an unknown directive, and for a pattern without a year."""
    found = _DIRECTIVE.findall(pattern)
    if wrong := next((one for one in found if one not in KNOWN), None):
        if wrong == "%f":
            raise ValueError("%f is read behind a point only, as .%f")
        raise ValueError(f"{wrong} is not among its directives, which are {' '.join(KNOWN)}")
    has = set(found)
    if not has & _YEARS:
        raise ValueError("it has no year: a time of day alone is not a moment")
    if "%I" in has and "%p" not in has:
        raise ValueError("%I needs %p: hours from 1 to 12 are twice a day")
    absent = [
        (part, least)
        for part, least, there in (
            ("%m", "01", bool(has & _MONTHS) or "%j" in has),
            ("%d", "01", bool(has & {"%d", "%j"})),
            ("%H", "00", bool(has & {"%H", "%I"})),
            ("%M", "00", "%M" in has),
        )
        if not there
    ]
    spelled = "".join([pattern.replace(".%f", "%.f"), *(f" {part}" for part, _ in absent)])
    return TimePattern(spelled, "".join(f" {least}" for _, least in absent))
