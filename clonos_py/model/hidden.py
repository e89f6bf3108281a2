"""Columns that the engine computes for itself beside those of a stream: what an aggregate is over, what rows are sorted
by, the event time of a window's result. They are not visible, in rows or in plans."""

from __future__ import annotations

from collections.abc import Iterable

_PREFIX = "~"
"""No field of a class can begin with it."""


def hidden(name: str, taken: Iterable[str] = ()) -> str:
    """The name of such a column, another than those ``taken``."""
    found = _PREFIX + name
    while found in taken:
        found = _PREFIX + found
    return found


def is_hidden(column: str) -> bool:
    return column.startswith(_PREFIX)
