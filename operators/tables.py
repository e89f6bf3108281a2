"""Running aggregates without a window: a table with one row per key, which every batch updates.

In the mode ``changes`` each batch emits the new rows of the keys that it touched; in the mode ``at_end`` the whole
table comes out once, sorted by key (nulls last), when all input has ended; in the mode ``deltas`` each batch emits, for
another aggregate, the rows that changed, as they were with the weight -1 and as they are with the weight 1. Other keys
than the touched cost nothing. ``TableCombine`` reduces batches before the shuffle (D14).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from clonos_py.columns.matching import equal_rows
from clonos_py.columns.ordering import order_by
from clonos_py.columns.views import Bools, concat
from clonos_py.model.aggregates import Aggregate
from clonos_py.model.operators import Operator
from clonos_py.model.state import OperatorState
from clonos_py.model.tables import TableMode, unweighted
from clonos_py.operators.aggregation import Partials
from clonos_py.operators.distinct_counts import DistinctCounts, counting
from clonos_py.operators.keyed_chunks import parted, with_groups
from clonos_py.operators.keyed_rows import KeyedRows
from clonos_py.operators.weights import combined, with_weight


class TableCombine(Operator):
    """One partial row per key of each batch. Emits ``combined_table_schema``; keeps no state. ``weighted``: rows are
    deltas of another table."""

    def __init__(self, keys: Sequence[str], aggregates: Sequence[Aggregate], weighted: bool = False) -> None:
        self._partials = Partials(keys, aggregates)
        self._weighted = weighted

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        if rows.num_rows:
            self.out.emit(combined(self._partials, rows, self._weighted))


class TableAggregate(Operator):
    """``schema``, but for the weight of deltas, is filled by name from the keys and the aggregates. Without keys there
    is one row, once there is any input. ``weighted``: rows are deltas of another table, none of whose rows moves from
    key to key. ``combined``: the input is that of ``TableCombine``."""

    def __init__(
        self,
        keys: Sequence[str],
        aggregates: Sequence[Aggregate],
        schema: pa.Schema,
        mode: TableMode,
        weighted: bool = False,
        combined: bool = False,
    ) -> None:
        self._input = Partials(keys, aggregates)
        self._distinct = DistinctCounts(keys, aggregates)
        self._partials = Partials(keys, counting(aggregates))
        self._schema = unweighted(schema)
        self._mode = mode
        self._weighted = weighted
        self._combined = combined
        self._table = KeyedRows(keys)

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        if rows.num_rows == 0:
            return
        partial = self._input.merge_by_key(rows) if self._combined else combined(self._input, rows, self._weighted)
        before, after, known = self._upsert(
            self._distinct.counted(with_groups(partial, self._partials.keys, self.ctx.key_groups))
        )
        if self._mode == "changes":
            self.out.emit(self._finish(after))
        elif self._mode == "deltas":
            self._emit_deltas(before, after, known)

    def on_end(self) -> None:
        if self._mode != "at_end" or self._table.rows == 0:
            return
        numbers = self._table.all_numbers()
        by = [key for key in self._partials.keys if key in self._schema.names]
        if by:
            numbers = numbers[order_by(self._table.places(numbers, by))]
        for part in parted(numbers):
            self.out.emit(self._finish(self._table.take(part)))

    def snapshot(self) -> OperatorState:
        seen = self._distinct.snapshot()
        state = self._table.snapshot(seen.values)
        return OperatorState({**state.tables, **seen.tables}, state.values)

    def restore(self, parts: Sequence[OperatorState]) -> None:
        self._table.restore(parts, self.ctx.groups)
        self._distinct.restore(parts, self.ctx.groups)

    def _upsert(self, partial: pa.RecordBatch) -> tuple[pa.RecordBatch | None, pa.RecordBatch, Bools]:
        """Merges partial rows of distinct keys into the table. Gives the rows of these keys as they were, if there were
        any, and as they are, and for each of the latter whether it was there before; in the same order."""
        _, touched = self._table.find(partial)
        known = np.zeros(partial.num_rows, bool)
        before = None
        if len(touched):
            touched = np.sort(touched)
            old = self._table.take(touched)
            whole = concat([old, partial])
            groups = self._partials.groups(whole)
            known = groups.first < old.num_rows
            before = old.take(groups.first[known])
            self._table.remove(touched)
            partial = self._partials.merge(whole, groups)
        self._table.append(partial)
        self._table.compact()
        return before, partial, known

    def _emit_deltas(self, before: pa.RecordBatch | None, after: pa.RecordBatch, known: Bools) -> None:
        new = self._finish(after)
        if before is None:
            self.out.emit(with_weight(new, 1))
            return
        old = self._finish(before)
        names, places = old.schema.names, np.flatnonzero(known)
        same = equal_rows(old, names, np.arange(old.num_rows), new, names, places, nulls_equal=True)
        changed = np.ones(new.num_rows, bool)
        changed[places] = ~same
        gone = old.take(np.flatnonzero(~same))
        self.out.emit(concat([with_weight(gone, -1), with_weight(new.take(np.flatnonzero(changed)), 1)]))

    def _finish(self, partial: pa.RecordBatch) -> pa.RecordBatch:
        return self._partials.finish(partial, self._schema, {})


def combined_table_schema(rows: pa.Schema, keys: Sequence[str], aggregates: Sequence[Aggregate]) -> pa.Schema:
    """What ``TableCombine`` emits for rows of a schema."""
    return pa.schema(Partials(keys, aggregates).fields(rows, []))
