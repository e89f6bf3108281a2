"""Which rows a join gives, of which columns, and how far apart in time its rows may be."""

from __future__ import annotations

from enum import Enum

Bounds = tuple[int, int | str]
"""By how many microseconds the right row of a join may be later than the left one: at least, and at most. The second
may instead name a column of the left row that holds the latest time."""

JoinColumns = tuple[tuple[str, int, str], ...]
"""The columns of a join's results: (name in the result, side: 0 left or 1 right, name in that input)."""


class JoinType(Enum):
    """The rows of a join's result, as in SQL: pairs, rows without a match, or left rows."""

    INNER = "inner"
    """A row for each pair."""
    LEFT = "left"
    """Also a row for each left row without a match; its columns of the right side are null."""
    RIGHT = "right"
    FULL = "full"
    SEMI = "semi"
    """Each left row with a match, once."""
    ANTI = "anti"
    """Each left row without a match."""

    @property
    def pairs(self) -> bool:
        """Whether a row of the result has columns of both sides."""
        return self not in (JoinType.SEMI, JoinType.ANTI)

    @property
    def unmatched(self) -> tuple[bool, bool]:
        """By side: whether its rows without a match are in the result."""
        return self in (JoinType.LEFT, JoinType.FULL, JoinType.ANTI), self in (JoinType.RIGHT, JoinType.FULL)

    @property
    def nullable(self) -> tuple[bool, bool]:
        """By side: whether a row of the result may lack it, so that its columns are null."""
        left, right = self.unmatched
        return right, left
