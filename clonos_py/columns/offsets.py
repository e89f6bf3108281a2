"""Rows found by an integer: its offset in a narrow range is the place of the row's number in a table."""

from __future__ import annotations

import numpy as np

from clonos_py.columns.views import Column, Ints, fixed, is_integral

_SPARE_SLOTS = 1_024
_SLOTS_PER_ROW = 4
_ABSENT = -1


def narrow_range(values: Ints) -> range | None:
    """From the least to the greatest of some integers, at least one; None if a table of these would be mostly empty."""
    found = range(int(values.min()), int(values.max()) + 1)
    return found if found.stop - found.start <= _SLOTS_PER_ROW * len(values) + _SPARE_SLOTS else None


class Offsets:
    """Of integers that are all different, and not too far apart."""

    def __init__(self, low: int, places: Ints) -> None:
        self._low = low
        self._places = places

    @classmethod
    def of(cls, column: Column) -> Offsets | None:
        """None where the column is not of that kind."""
        values = integers(column)
        if values is None or len(values) == 0:
            return None
        if (slots := narrow_range(values)) is None:
            return None
        places = np.full(len(slots), _ABSENT, np.int64)
        places[values - slots.start] = np.arange(len(values))
        return cls(slots.start, places) if np.count_nonzero(places != _ABSENT) == len(values) else None

    def probe(self, values: Ints) -> tuple[Ints | None, Ints]:
        """Positions in ``values`` of those that are there, None if these are all, and the numbers of their rows."""
        at = values - self._low  # out of range also where it wraps around
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
    """A column as int64; None where it has nulls or values that are none."""
    if not is_integral(column.type) or column.null_count:
        return None
    values = fixed(column)
    if values.dtype == np.uint64:
        return None
    found: Ints = values.astype(np.int64, copy=False)
    return found
