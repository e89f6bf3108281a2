"""Windows as values, created by the DSL and computed by operators."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tumbling:
    """[k * size, (k + 1) * size) in microseconds, aligned to the epoch."""

    size_us: int
    processing_time: bool = False


@dataclass(frozen=True)
class Hopping:
    """Windows of ``size_us`` that start every ``slide_us``; a row belongs to size / slide of them."""

    size_us: int
    slide_us: int
    processing_time: bool = False


@dataclass(frozen=True)
class Session:
    """Rows of a key less than ``gap_us`` apart; the window ends ``gap_us`` after its last row."""

    gap_us: int
    processing_time: bool = False


@dataclass(frozen=True)
class Counted:
    """``size`` rows of a key, in their order of arrival. A window starts with every ``every``-th row; ``size`` is a
    multiple of it. ``incomplete``: windows that are incomplete at the end of all input are emitted, too."""

    size: int
    every: int
    incomplete: bool = False


Bounds = tuple[int, int | str]
"""By how many microseconds the right row of a join may be later than the left one: at least, and at most. The second
may instead name a column of the left row that holds the latest time."""

JoinColumns = tuple[tuple[str, int, str], ...]
"""The columns of a join's results: (name in the result, side: 0 left or 1 right, name in that input)."""

Window = Tumbling | Hopping | Session
