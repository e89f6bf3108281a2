"""The order of file names."""

from __future__ import annotations

import re


def by_number(name: str) -> list[tuple[int, str]]:
    """A key by which names are sorted, with numbers in them compared by value."""
    return [(int(part), "") if part.isdecimal() else (0, part) for part in re.split(r"(\d+)", name)]
