"""State of top-n: the first n rows of each key in some order. A row that fell out never comes back, and is not kept."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from clonos_py.columns.grouping import group
from clonos_py.columns.views import Ints, concat
from clonos_py.model.state import OperatorState
from clonos_py.model.tables import SortKey
from clonos_py.operators.keyed_rows import KeyedRows
from clonos_py.operators.ranking import Change, Ranking


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
