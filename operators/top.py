"""Top-n per key, as a table that every batch updates. With n = 1: the last row, the highest bid, the first duplicate.

The state holds the current first n rows: a row that drops out never returns. A row of the table is identified by its
key and, if there may be several, its rank. The modes are those of ``tables``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from clonos_py.columns.grouping import group
from clonos_py.columns.views import Ints
from clonos_py.model.operators import Operator
from clonos_py.model.state import OperatorState
from clonos_py.model.tables import SortKey, TableMode
from clonos_py.model.times import MIN_TIME
from clonos_py.operators.expiry import Expiry, times_of
from clonos_py.operators.first_rows import FirstRows, final_rows
from clonos_py.operators.keyed_chunks import grouped_schema, with_groups
from clonos_py.operators.keyed_rows import ROWS_TABLE
from clonos_py.operators.ranking import Change, Ranking, with_ranks
from clonos_py.operators.table_output import TableOutput


class TopCombine(Operator):
    """Emits the rows that are among the first of their key within a batch, with these columns. Keeps no state."""

    def __init__(self, keys: Sequence[str], n: int, order: Sequence[SortKey], columns: Sequence[str]) -> None:
        self._n = n
        self._columns = list(columns)
        self._ranking = Ranking(keys, order)

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        first = self._ranking.first(rows, self._n)
        rows = rows.select(self._columns)
        self.out.emit(rows if len(first) == rows.num_rows else rows.take(first))


class TopRows(Operator):
    """The operator. ``schema``, except the weight of deltas and the ``kind`` of changes, is filled by name from the
    input; ``rank``, if not None, is 1, 2, ... Rows that are equal in order are ranked by arrival. For
    ``retract_when_changed`` and ``kind`` see ``TableOutput``."""

    def __init__(
        self,
        keys: Sequence[str],
        n: int,
        order: Sequence[SortKey],
        schema: pa.Schema,
        mode: TableMode,
        rank: str | None = None,
        retract_when_changed: Sequence[str] | None = None,
        kind: str | None = None,
        ttl_us: int | None = None,
        time_column: str | None = None,
    ) -> None:
        self._keys = tuple(keys)
        self._n = n
        self._output = TableOutput(schema, mode, retract_when_changed, kind)
        self._schema = self._output.rows
        self._rank = rank
        columns = [name for name in self._schema.names if name != rank]
        self._first = FirstRows(keys, n, order, columns if time_column is None else [*columns, time_column])
        self._time = time_column or ""
        self._expiry = Expiry(ttl_us, self._time, stays_at_end=True)

    @property
    def final(self) -> bool:
        return self._output.mode == "at_end"

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        if rows.num_rows == 0:
            return
        rows = with_groups(rows.select(self._first.columns), self._keys, self.ctx.key_groups)
        if not self._expiry.none:
            self._delete(self._expired_before(rows))
        change, numbers = self._first.put(rows)
        if len(change.shown) and self._output.mode != "at_end":
            self._emit(change, numbers)
        self._first.rows.compact()

    def on_watermark(self, watermark: int) -> int:
        self._delete(self._expiry.due(self._first.rows, watermark))
        return watermark

    def on_end(self) -> None:
        if self._output.mode == "at_end":
            for rows in final_rows(
                self._first.rows, self._first.ranking, self._n, self._keys, self._rank, self._schema
            ):
                self.out.emit(rows)

    def tables(self, inputs: Sequence[pa.Schema]) -> Mapping[str, pa.Schema]:
        return {ROWS_TABLE: grouped_schema(inputs[0], self._first.columns)}

    def snapshot(self) -> OperatorState:
        return self._first.snapshot()

    def restore(self, parts: Sequence[OperatorState]) -> None:
        self._first.rows.restore(parts, self.ctx.groups)
        self._expiry.restored()

    def _expired_before(self, rows: pa.RecordBatch) -> Ints:
        """The rows that have expired before the newest of these of their key."""
        groups = group([rows.column(key) for key in self._keys], rows.num_rows)
        newest = np.full(groups.size, MIN_TIME)
        np.maximum.at(newest, groups.ids, times_of(rows, self._time))
        of, numbers = self._first.rows.find(rows.select(list(self._keys)).take(groups.first))
        return self._expiry.among(self._first.rows, numbers, self.ctx.watermark, newest[of])

    def _delete(self, expired: Ints) -> None:
        """Deletes these rows, as they have expired. Those behind them move up."""
        if not len(expired):
            return
        numbers = self._first.of_same_keys(self._first.rows.take(expired))
        rows = self._first.rows.take(numbers, self._first.columns)
        left = self._first.ranking.left(rows, ~np.isin(numbers, expired))
        self._first.rows.remove(expired)
        self._first.rows.compact()
        if not self._output.compares:
            return
        before, after, deleted = (
            with_ranks(rows.take(found.rows), self._rank, found.ranks, self._schema) for found in left
        )
        changed = self._output.changed(before, after, np.ones(after.num_rows, bool), deleted)
        assert changed is not None
        self.out.emit(changed)

    def _emit(self, change: Change, numbers: Ints) -> None:
        new = self._first.rows.take(numbers[change.shown], self._first.columns)
        after = with_ranks(new, self._rank, change.shown_ranks, self._schema)
        if not self._output.compares:
            self.out.emit(after)
            return
        before = None
        if len(change.hidden):
            old = self._first.rows.take(numbers[change.hidden], self._first.columns)
            before = with_ranks(old, self._rank, change.hidden_ranks, self._schema)
        found = self._output.changed(before, after, change.replaced)
        if found is not None:
            self.out.emit(found)
