"""State of top-n: the first n rows of each key in some order. A row that fell out never comes back, and is not kept."""

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


class FirstRows:
    """Of rows that are equal in their ``order`` the one that came first is first."""

    def __init__(self, keys: Sequence[str], n: int, order: Sequence[SortKey], columns: Sequence[str]) -> None:
        self._keys = tuple(keys)
        self._n = n
        self.ranking = Ranking(keys, order)
        self.columns = list(dict.fromkeys([*self.ranking.columns, *columns]))
        """What is kept of a row."""
        self.rows = KeyedRows(keys)

    def put(self, rows: pa.RecordBatch) -> tuple[Change, Ints]:
        """Takes rows in, with their key groups; there is at least one. Gives what they change, and the numbers of the
        old rows in terms of which that is told; these can be taken until ``rows`` is compacted."""
        numbers = self._of_same_keys(rows)
        parts = [self.rows.take(numbers, self.ranking.columns)] if len(numbers) else []
        whole = concat([*parts, rows.select(self.ranking.columns)])
        change = self.ranking.change(len(numbers), whole, self._n)
        if len(change.entering):
            self.rows.remove(numbers[change.leaving])
            self.rows.append(rows.take(change.entering - len(numbers)))
        return change, numbers

    def snapshot(self) -> OperatorState:
        return self.rows.snapshot({})

    def _of_same_keys(self, rows: pa.RecordBatch) -> Ints:
        """The numbers of the rows with keys of these rows, in the order in which they came."""
        keys = group([rows.column(key) for key in self._keys], rows.num_rows)
        _, numbers = self.rows.find(rows.take(keys.first))
        return np.sort(numbers)


def final_rows(
    rows: KeyedRows, ranking: Ranking, n: int, keys: Sequence[str], rank: str | None, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """The first ``n`` rows of all keys with the columns of ``schema``, sorted by what it has of ``keys``, nulls last,
    and then by rank; without either by key, as they came."""
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
