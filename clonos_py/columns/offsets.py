"""Lookup of rows by an integer in a narrow range: a table holds the row number at the integer's offset."""

from __future__ import annotations

import numpy as np

from clonos_py.columns.views import Column, Ints, fixed, is_integral

SPARE_SLOTS = 1_024
_SLOTS_PER_ROW = 4
_ABSENT = -1


def narrow_range(values: Ints) -> range | None:
    """The range from the least to the greatest value (of at least one); None if a table over it is mostly empty."""
    found = range(int(values.min()), int(values.max()) + 1)
    return found if found.stop - found.start <= _SLOTS_PER_ROW * len(values) + SPARE_SLOTS else None


class Offsets:
    """A lookup table of distinct integers in a narrow range."""

    def __init__(self, low: int, places: Ints) -> None:
        self._low = low
        self._places = places

    @classmethod
    def of(cls, column: Column) -> Offsets | None:
        """The table of a column's values; None if they are not distinct integers in a narrow range."""
        values = integers(column)
        if values is None or len(values) == 0:
            return None
        if (slots := narrow_range(values)) is None:
            return None
        places = np.full(len(slots), _ABSENT, np.int64)
        places[values - slots.start] = np.arange(len(values))
        return cls(slots.start, places) if np.count_nonzero(places != _ABSENT) == len(values) else None

    def probe(self, values: Ints) -> tuple[Ints | None, Ints]:
        """The positions in ``values`` that are in the table (None if all are), and their row numbers."""
        at = values - self._low  # an index that wraps around is out of range, too
        inside = at.view(np.uint64) < len(self._places)
        if inside.all():
            numbers = self._places[at]
            if (numbers != _ABSENT).all():
                return None, numbers
        else:
            numbers = np.full(len(values), _ABSENT, np.int64)
            numbers[inside] = self._places[at[inside]]
        positions = np.flatnonzero(numbers != _ABSENT)
        return positions, numbers[positions]


def integers(column: Column) -> Ints | None:
    """A column as int64; None if it has nulls, is not integral, or is uint64."""
    if not is_integral(column.type) or column.null_count:
        return None
    values = fixed(column)
    if values.dtype == np.uint64:
        return None
    found: Ints = values.astype(np.int64, copy=False)
    return found
