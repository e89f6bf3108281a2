"""Names: lists of them as users give them, and the order of file names."""

from __future__ import annotations

import re
from collections.abc import Sequence


def by_number(name: str) -> list[tuple[int, str]]:
    """A key by which names are sorted, with numbers in them compared by value."""
    return [(int(part), "") if part.isdecimal() else (0, part) for part in re.split(r"(\d+)", name)]


def names_of(given: str | Sequence[str]) -> tuple[str, ...]:
    """One name, or several."""
    return (given,) if isinstance(given, str) else tuple(given)
