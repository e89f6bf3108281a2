"""Hidden columns: columns that the engine computes beside those of a stream, such as the input of an aggregate, sort
keys and the event time of a window's result. They are not visible in rows or plans."""

from __future__ import annotations

from collections.abc import Iterable

_PREFIX = "~"
"""No field of a class can begin with this character."""


def hidden(name: str, taken: Iterable[str] = ()) -> str:
    """The name of a hidden column, different from those in ``taken``."""
    found = _PREFIX + name
    while found in taken:
        found = _PREFIX + found
    return found


def is_hidden(column: str) -> bool:
    return column.startswith(_PREFIX)
