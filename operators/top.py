"""The first rows of each key in some order, as a table that every batch updates: top-n, and with n = 1 the last row,
the highest bid, the first of many duplicates.

State are the rows that are among the first n now: one that fell out never comes back. A row of the table is known by
its key and, where there may be several, its rank. The modes are those of ``tables``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from clonos_py.columns.ordering import order_by
from clonos_py.columns.views import Ints, concat
from clonos_py.model.operators import Operator
from clonos_py.model.state import OperatorState
from clonos_py.model.tables import SortKey, TableMode, unweighted
from clonos_py.operators.first_rows import FirstRows
from clonos_py.operators.keyed_chunks import parted, with_groups
from clonos_py.operators.keyed_rows import KeyedRows
from clonos_py.operators.ranking import Change, Ranking, with_ranks
from clonos_py.operators.weights import with_weight


class TopCombine(Operator):
    """The rows of a batch that are among the first of their key within it, with these columns; keeps no state."""

    def __init__(self, keys: Sequence[str], n: int, order: Sequence[SortKey], columns: Sequence[str]) -> None:
        self._n = n
        self._columns = list(columns)
        self._ranking = Ranking(keys, order)

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        first = self._ranking.first(rows, self._n)
        rows = rows.select(self._columns)
        self.out.emit(rows if len(first) == rows.num_rows else rows.take(first))


class TopRows(Operator):
    """``schema``, but for the weight of deltas, is filled by name from the input; ``rank``, if not None, is 1, 2, ...
    Of rows that are equal in their order the one that came first is first."""

    def __init__(
        self,
        keys: Sequence[str],
        n: int,
        order: Sequence[SortKey],
        schema: pa.Schema,
        mode: TableMode,
        rank: str | None = None,
    ) -> None:
        self._keys = tuple(keys)
        self._schema = unweighted(schema)
        self._mode = mode
        self._rank = rank
        self._first = FirstRows(keys, n, order, [name for name in self._schema.names if name != rank])

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        if rows.num_rows == 0:
            return
        rows = with_groups(rows.select(self._first.columns), self._keys, self.ctx.key_groups)
        change, numbers = self._first.put(rows)
        if len(change.shown) and self._mode != "at_end":
            self._emit(change, numbers, rows)
        self._first.rows.compact()

    def on_end(self) -> None:
        if self._mode != "at_end" or self._first.rows.rows == 0:
            return
        numbers, ranks = self._sorted(self._first.rows)
        for part in parted(np.arange(len(numbers))):
            rows = self._first.rows.take(numbers[part])
            self.out.emit(with_ranks(rows, self._rank, ranks[part], self._schema))

    def snapshot(self) -> OperatorState:
        return self._first.snapshot()

    def restore(self, parts: Sequence[OperatorState]) -> None:
        self._first.rows.restore(parts, self.ctx.groups)

    def _sorted(self, rows: KeyedRows) -> tuple[Ints, Ints]:
        """All rows and their ranks, in the order of what the schema has of keys and rank."""
        numbers = rows.all_numbers()
        ranked = self._first.ranking.ranked(rows.take(numbers, self._first.ranking.columns))
        numbers, ranks = numbers[ranked.order], ranked.ranks
        by = [key for key in self._keys if key in self._schema.names]
        if not by and self._rank is None:
            return numbers, ranks
        order = order_by([*rows.places(numbers, by), ranks])
        return numbers[order], ranks[order]

    def _emit(self, change: Change, numbers: Ints, rows: pa.RecordBatch) -> None:
        after = with_ranks(self._gathered(change.shown, numbers, rows), self._rank, change.shown_ranks, self._schema)
        if self._mode == "changes":
            self.out.emit(after)
            return
        deltas = [with_weight(after, 1)]
        if len(change.hidden):
            before = self._first.rows.take(numbers[change.hidden], self._first.columns)
            deltas.insert(0, with_weight(with_ranks(before, self._rank, change.hidden_ranks, self._schema), -1))
        self.out.emit(concat(deltas))

    def _gathered(self, places: Ints, numbers: Ints, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows at these places, the first of which are ``numbers``, the others ``rows``."""
        old = places < len(numbers)
        new = rows.select(self._first.columns).take(places[~old] - len(numbers))
        if not old.any():
            return new
        order = np.empty(len(places), np.int64)
        order[np.concatenate([np.flatnonzero(old), np.flatnonzero(~old)])] = np.arange(len(places))
        kept = self._first.rows.take(numbers[places[old]], self._first.columns)
        return concat([kept, new]).take(order)
