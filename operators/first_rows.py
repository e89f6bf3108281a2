"""State of top-n: the first n rows of each key in some order. A row that drops out is removed for good."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from clonos_py.columns.grouping import group
from clonos_py.columns.ordering import order_by
from clonos_py.columns.views import Ints, concat
from clonos_py.model.state import OperatorState
from clonos_py.model.tables import SortKey
from clonos_py.operators.keyed_chunks import parted
from clonos_py.operators.keyed_rows import KeyedRows
from clonos_py.operators.ranking import Change, Ranking, with_ranks

NOT_STORED = -1


class FirstRows:
    """The first ``n`` rows by key. Rows that are equal in ``order`` rank by arrival."""

    def __init__(self, keys: Sequence[str], n: int, order: Sequence[SortKey], columns: Sequence[str]) -> None:
        self._keys = tuple(keys)
        self._n = n
        self.ranking = Ranking(keys, order)
        self.columns = list(dict.fromkeys([*self.ranking.columns, *columns]))
        """The columns that are stored."""
        self.rows = KeyedRows(keys)

    def put(self, rows: pa.RecordBatch) -> tuple[Change, Ints]:
        """Adds rows, which carry their key groups; at least one. Returns the change, and the numbers of the old and new
        rows to which it refers. Those that leave can be read, too, until ``rows`` is compacted. ``NOT_STORED`` stands
        for a new row that does not enter."""
        numbers = self.of_same_keys(rows)
        parts = [self.rows.take(numbers, self.ranking.columns)] if len(numbers) else []
        whole = concat([*parts, rows.select(self.ranking.columns)])
        change = self.ranking.change(len(numbers), whole, self._n)
        if len(change.entering):
            self.rows.remove(numbers[change.leaving])
            every = len(change.entering) == rows.num_rows
            stored = self.rows.append(rows if every else rows.take(change.entering - len(numbers)))
            numbers = np.append(numbers, np.full(rows.num_rows, NOT_STORED))
            numbers[change.entering] = stored
        return change, numbers

    def snapshot(self) -> OperatorState:
        return self.rows.snapshot({})

    def of_same_keys(self, rows: pa.RecordBatch) -> Ints:
        """The numbers of the stored rows whose keys are among those of ``rows``, in the order of arrival."""
        keys = group([rows.column(key) for key in self._keys], rows.num_rows)
        _, numbers = self.rows.find(rows.select(list(self._keys)).take(keys.first))
        return np.sort(numbers)


def final_rows(
    rows: KeyedRows, ranking: Ranking, n: int, keys: Sequence[str], rank: str | None, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """The first ``n`` rows of all keys with the columns of ``schema``. Sorted by those of ``keys`` that are in
    ``schema``, nulls last, then by rank. If ``schema`` has neither, keys come in the order in which they arrived."""
    if rows.rows == 0:
        return
    numbers = rows.all_numbers()
    ranked = ranking.ranked(rows.take(numbers, ranking.columns))
    first = ranked.ranks < n
    numbers, ranks = numbers[ranked.order[first]], ranked.ranks[first]
    by = [key for key in keys if key in schema.names]
    if by or rank is not None:
        order = order_by([*rows.places(numbers, by), ranks])
        numbers, ranks = numbers[order], ranks[order]
    for part in parted(np.arange(len(numbers))):
        yield with_ranks(rows.take(numbers[part]), rank, ranks[part], schema)
