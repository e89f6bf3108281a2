"""Windows as values. The DSL makes them, operators compute with them."""

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


Bounds = tuple[int, int | str]
"""How much later than the left row of a join the right one is: at least so many microseconds, and at most so many, or
until the time in a column of the left row."""

JoinColumns = tuple[tuple[str, int, str], ...]
"""What the results of a join are made of: (name in the result, side: 0 left or 1 right, name in that input)."""

Window = Tumbling | Hopping | Session
