"""The place of rows among those of their key, in a given order: 0 for the first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from clonos_py.columns.grouping import group
from clonos_py.columns.ordering import order_by, places
from clonos_py.columns.views import Bools, Ints
from clonos_py.model.tables import SortKey


class Ranked(NamedTuple):
    """``order``: row numbers by key, then by rank; of its i-th row ``ranks[i]``, and ``starts[i]``: where in ``order``
    the rows of its key begin."""

    order: Ints
    ranks: Ints
    starts: Ints


class Change(NamedTuple):
    """What new rows do to the first n of each key, as positions in the old rows and behind them the new ones.

    ``entering`` and ``leaving`` are those that come in and fall out. ``shown`` have a rank that they had not,
    ``hidden`` had one that they have not any more; each with that rank, by key and then by rank. ``known``: which of
    the shown have a rank that one of the hidden had; of these each is the successor of one, in the same order."""

    entering: Ints
    leaving: Ints
    shown: Ints
    shown_ranks: Ints
    hidden: Ints
    hidden_ranks: Ints
    known: Bools


class Ranking:
    """Ranks by ``order`` within equal ``keys``; where two rows are equal the earlier one is first."""

    def __init__(self, keys: Sequence[str], order: Sequence[SortKey]) -> None:
        self._keys = tuple(keys)
        self._order = tuple(order)
        self.columns = tuple(dict.fromkeys([*self._keys, *(key.column for key in self._order)]))
        """What it reads."""

    def ranked(self, rows: pa.RecordBatch) -> Ranked:
        return self.within(group([rows.column(key) for key in self._keys], rows.num_rows).ids, rows)

    def within(self, groups: Ints, rows: pa.RecordBatch) -> Ranked:
        """The ranks within given groups, one number per row."""
        order = order_by([groups, *(places(rows.column(key.column), key.descending) for key in self._order)])
        ids = groups[order]
        begins = np.ones(len(ids), bool)
        begins[1:] = ids[1:] != ids[:-1]
        starts = np.maximum.accumulate(np.where(begins, np.arange(len(ids)), 0))
        return Ranked(order, np.arange(len(ids)) - starts, starts)

    def first(self, rows: pa.RecordBatch, n: int) -> Ints:
        """The rows that are among the first n of their key, in the order in which they came."""
        ranked = self.ranked(rows)
        return np.sort(ranked.order[ranked.ranks < n])

    def change(self, old: int, rows: pa.RecordBatch, n: int) -> Change:
        """What happens when all rows but the first ``old``, which are the first n of their keys, come in."""
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
            known=left[shown],
        )


def with_ranks(rows: pa.RecordBatch, rank: str | None, ranks: Ints, schema: pa.Schema) -> pa.RecordBatch:
    """The columns of ``schema``; ``rank`` is 1 for the first."""
    columns: list[Any] = [pa.array(ranks + 1) if field.name == rank else rows.column(field.name) for field in schema]
    columns = [c if c.type == field.type else c.cast(field.type) for c, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
