"""Ranks rows among those of the same key, in a given order: 0 for the first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from clonos_py.columns.first_in_groups import first_in_groups, places_in_groups
from clonos_py.columns.grouping import Groups, group
from clonos_py.columns.ordering import order_by, places
from clonos_py.columns.views import Bools, Ints
from clonos_py.model.tables import SortKey


class Ranked(NamedTuple):
    """Ranked rows. ``order``: row numbers by key, then by rank. ``ranks[i]`` is the rank of the i-th row in ``order``;
    ``starts[i]`` is the index in ``order`` at which the rows of its key begin."""

    order: Ints
    ranks: Ints
    starts: Ints


class Change(NamedTuple):
    """How new rows change the first n of each key. Rows are positions in the old rows followed by the new ones.

    ``entering`` and ``leaving`` rows join and drop out of the first n. ``shown`` rows have a new rank, and ``hidden``
    rows have lost their old one; each with that rank, by key, then by rank. ``replaced``: which of the shown rows take
    a rank that a hidden row had; these correspond to the hidden rows in order."""

    entering: Ints
    leaving: Ints
    shown: Ints
    shown_ranks: Ints
    hidden: Ints
    hidden_ranks: Ints
    replaced: Bools


class RowRanks(NamedTuple):
    """Row numbers, and the rank of each."""

    rows: Ints
    ranks: Ints


class Left(NamedTuple):
    """How the rest of some rows is ranked, by key, then by rank. ``before``: the rows that had the ranks of ``after``;
    ``lost``: those whose ranks nobody has any more."""

    before: RowRanks
    after: RowRanks
    lost: RowRanks


class Ranking:
    """Ranks by ``order`` within equal ``keys``. Of equal rows, the earlier one ranks first."""

    def __init__(self, keys: Sequence[str], order: Sequence[SortKey]) -> None:
        self._keys = tuple(keys)
        self._order = tuple(order)
        self.columns = tuple(dict.fromkeys([*self._keys, *(key.column for key in self._order)]))
        """The columns that are read."""

    def ranked(self, rows: pa.RecordBatch) -> Ranked:
        return self.within(self._groups(rows).ids, rows)

    def within(self, groups: Ints, rows: pa.RecordBatch) -> Ranked:
        """Ranks rows within given groups; ``groups`` has the group number of each row."""
        order = order_by([groups, *self._places(rows)])
        return Ranked(order, *places_in_groups(groups[order]))

    def first(self, rows: pa.RecordBatch, n: int) -> Ints:
        """The rows that are among the first n of their key, in their original order."""
        return first_in_groups(self._groups(rows), self._places(rows), n)

    def _groups(self, rows: pa.RecordBatch) -> Groups:
        return group([rows.column(key) for key in self._keys], rows.num_rows)

    def _places(self, rows: pa.RecordBatch) -> list[Ints]:
        """By column of the order: integers that sort as its values."""
        return [places(rows.column(key.column), key.descending) for key in self._order]

    def change(self, old: int, rows: pa.RecordBatch, n: int) -> Change:
        """The change when rows are added. The first ``old`` of ``rows`` are the current first n of their keys; the
        others are new."""
        ranked = self.ranked(rows)
        order, ranks = ranked.order, ranked.ranks
        was = order < old
        before: Ints = np.cumsum(was) - was
        old_ranks: Ints = before - before[ranked.starts]
        first = ranks < n
        moved = ~was | ~first | (old_ranks != ranks)
        shown, hidden = first & moved, was & moved
        left = np.zeros(len(order), bool)
        left[ranked.starts[hidden] + old_ranks[hidden]] = True
        return Change(
            entering=np.sort(order[first & ~was]),
            leaving=np.sort(order[was & ~first]),
            shown=order[shown],
            shown_ranks=ranks[shown],
            hidden=order[hidden],
            hidden_ranks=old_ranks[hidden],
            replaced=left[shown],
        )

    def left(self, rows: pa.RecordBatch, stays: Bools) -> Left:
        """The ranks of the rows that stay. The rows of their keys are all there."""
        order, ranks, starts = self.ranked(rows)
        kept = stays[order]
        before: Ints = np.cumsum(kept) - kept
        counts = np.zeros(len(order), np.int64)
        np.add.at(counts, starts, kept)
        has_rank = ranks < counts[starts]
        after = RowRanks(order[kept], (before - before[starts])[kept])
        return Left(RowRanks(order[has_rank], ranks[has_rank]), after, RowRanks(order[~has_rank], ranks[~has_rank]))


def with_ranks(rows: pa.RecordBatch, rank: str | None, ranks: Ints, schema: pa.Schema) -> pa.RecordBatch:
    """The rows with the columns of ``schema``. The column ``rank`` is 1 for the first row."""
    columns: list[Any] = [pa.array(ranks + 1) if field.name == rank else rows.column(field.name) for field in schema]
    columns = [c if c.type == field.type else c.cast(field.type) for c, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
