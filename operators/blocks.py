"""Aggregates of the last rows of each key, from partial results of blocks of rows.

The rows of a key have numbers, 0, 1, 2, ..., and a place that never falls: a time, or the number. Each row is a block
of its own, and the row with which 2, 4, 8, ... rows are complete ends a block of so many, too: row 11 ends blocks of
one, two and four rows. A block is merged from the two of half its size, so all of them cost as much as the rows twice.

The rows from any place up to a row are a few blocks: walking back from the row, each time the largest one that begins
at or after that place. Which blocks these are depends on the numbers alone. So a sum of floats, too, is the same
however rows came in batches, and after a restore from the rows that are left. A block that reaches back further than
any later row asks for (``reach``) is not made.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from clonos_py.columns.grouping import Groups
from clonos_py.columns.growing import GrowingArray, GrowingRows
from clonos_py.columns.views import Bools, Column, Ints
from clonos_py.operators.aggregation import Partials
from clonos_py.operators.pairs import NO_ROW


class Blocks:
    """The blocks of all keys. Rows are known by the order in which they were appended."""

    def __init__(self, partials: Partials, reach: int) -> None:
        self._partials = partials
        self._reach = reach
        self.places = GrowingArray(np.int64)
        """By row."""
        self._top = GrowingArray(np.int64)
        """By row, its largest block."""
        self._starts = GrowingArray(np.int64)
        """By block: the place of its first row."""
        self._before = GrowingArray(np.int64)
        """By block: the row of the key before its first one; ``NO_ROW`` if there is none."""
        self._half = GrowingArray(np.int64)
        """By block: the block of half the size that ends with the same row; ``NO_ROW`` for a single row."""
        self._levels = GrowingArray(np.int8)
        """By block: the binary logarithm of its size."""
        self._values = GrowingRows()

    @property
    def rows(self) -> int:
        """How many rows were appended."""
        return len(self._top.values)

    def append(self, values: Mapping[str, Column], places: Ints, numbers: Ints, before: Ints) -> None:
        """Adds rows, those of a key in their order. ``values``: their partial results; ``before``: the row before each,
        ``NO_ROW`` if there is none within reach."""
        first, count = self.rows, len(places)
        self.places.append(places)
        self._top.append(self._add(values, places, before, np.full(count, NO_ROW), 0))
        ends, level = np.flatnonzero(numbers & 1), 0
        while len(ends):
            own = self._top.values[first + ends]
            other, found = self._neighbours(own, places[ends], level)
            ends, own, other, level = ends[found], own[found], other[found], level + 1
            if not len(ends):
                break
            merged = self._merged(np.concatenate([other, own]), np.tile(np.arange(len(own)), 2), len(own))
            blocks = self._add(merged, self._starts.values[other], self._before.values[other], own, level)
            self._top.values[first + ends] = blocks
            ends = ends[numbers[ends] >> level & 1 == 1]

    def up_to(self, rows: Ints, places: Ints) -> dict[str, Column]:
        """The partial results of the rows from ``places`` up to ``rows``, of their keys."""
        asking, blocks = np.arange(len(rows)), self._top.values[rows]
        found: list[tuple[Ints, Ints]] = []
        starts, before, half, top = (a.values for a in (self._starts, self._before, self._half, self._top))
        while len(asking):
            fits = starts[blocks] >= places[asking]
            taken, of = blocks[fits], asking[fits]
            found.append((of, taken))
            earlier = before[taken]
            more = (earlier != NO_ROW) & (self.places.values[earlier] >= places[of])
            blocks = np.concatenate([top[earlier[more]], half[blocks[~fits]]])
            asking = np.concatenate([of[more], asking[~fits]])
        asked = np.concatenate([asking for asking, _ in reversed(found)])
        return self._merged(np.concatenate([blocks for _, blocks in reversed(found)]), asked, len(rows))

    def _neighbours(self, blocks: Ints, places: Ints, level: int) -> tuple[Ints, Bools]:
        """The blocks of the same size right before these, and which of them exist and are within reach."""
        before = self._before.values[blocks]
        others = self._top.values[before]
        is_there = (before != NO_ROW) & (self._levels.values[others] == level)
        return others, is_there & (self._starts.values[others] >= places - self._reach)

    def _add(self, values: Mapping[str, Column], starts: Ints, before: Ints, half: Ints, level: int) -> Ints:
        first = len(self._starts.values)
        self._values.append(values)
        self._starts.append(starts)
        self._before.append(before)
        self._half.append(half)
        self._levels.append(np.full(len(starts), level, np.int8))
        return np.arange(first, first + len(starts))

    def _merged(self, blocks: Ints, ids: Ints, size: int) -> dict[str, Column]:
        """One partial result for each of ``size`` groups, from blocks in order."""
        first = np.empty(size, np.int64)
        first[ids[::-1]] = np.arange(len(ids) - 1, -1, -1)
        merged = self._partials.merge(pa.record_batch(self._values.take(blocks)), Groups(ids, size, first))
        return dict(zip(merged.schema.names, merged.columns, strict=True))
