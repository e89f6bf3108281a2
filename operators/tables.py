"""Running aggregates without windows: a table with one row per key, which every batch updates.

In the mode ``changes``, each batch emits the new rows of the keys that it touched or, if a column gives the kind of
change, only of those that changed. In the mode ``at_end``, the whole table is emitted once, sorted by key (nulls last),
when all input has ended. In the mode ``deltas``, each batch emits the rows that changed, for another table: the old row
with the weight -1 and the new row with the weight 1. Keys that a batch does not touch cost nothing. ``TableCombine``
reduces batches before the shuffle (D14).

The input may be another table's deltas. A key without remaining rows there has no row here. Aggregates that cannot take
a value back keep the values of each key (``retractions``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from clonos_py.columns.ordering import order_by
from clonos_py.columns.views import Bools, Ints, fixed
from clonos_py.model.aggregates import NEWEST, Aggregate, accumulator_name
from clonos_py.model.operators import Operator
from clonos_py.model.state import OperatorState, united
from clonos_py.model.tables import TableMode
from clonos_py.operators.aggregation import ROWS_COLUMN, Partials
from clonos_py.operators.arrivals import Arrivals
from clonos_py.operators.distinct_counts import DistinctCounts, counting
from clonos_py.operators.expiry import Expiry, times_of
from clonos_py.operators.footprints import KeyedParts
from clonos_py.operators.keyed_chunks import grouped_schema, parted, with_groups
from clonos_py.operators.keyed_rows import KeyedRows
from clonos_py.operators.retractions import Replaced, Retractions, replaced
from clonos_py.operators.table_output import TableOutput
from clonos_py.operators.upserts import merged_with
from clonos_py.operators.weights import combined

_NEWEST = accumulator_name(NEWEST, "max")


class TableCombine(Operator):
    """Reduces each batch to one partial row per key. Emits ``combined_table_schema``; keeps no state. ``weighted``:
    rows are deltas of another table."""

    def __init__(self, keys: Sequence[str], aggregates: Sequence[Aggregate], weighted: bool = False) -> None:
        self._partials = Partials(keys, aggregates)
        self._weighted = weighted

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        if rows.num_rows:
            self.out.emit(combined(self._partials, rows, self._weighted))


class _Upserted(NamedTuple):
    """A change of partial rows. ``after``: the new rows; ``replaced``: which of them existed before; ``before``: their
    old values, in the same order; ``deleted``: the old rows of keys that have no rows now."""

    before: pa.RecordBatch | None
    after: pa.RecordBatch
    replaced: Bools
    deleted: pa.RecordBatch | None = None

    def without_empty(self) -> _Upserted:
        """Moves keys whose last row was deleted to ``deleted``."""
        present = fixed(self.after.column(ROWS_COLUMN)) > 0
        if present.all():
            return self
        after, replaced = self.after.take(np.flatnonzero(present)), self.replaced[present]
        if self.before is None:
            return _Upserted(None, after, replaced)
        stays = present[self.replaced]
        before, deleted = self.before.take(np.flatnonzero(stays)), self.before.take(np.flatnonzero(~stays))
        return _Upserted(before, after, replaced, deleted)


class TableAggregate(KeyedParts):
    """The table. ``schema``, except the weight of deltas and the ``kind`` of changes, is filled by name from the keys
    and the aggregates. Without keys there is one row, once there is any input. ``weighted``: rows are deltas of another
    table; ``table_keys`` are the columns that identify these, if a fold of the user needs them. ``combined``: the input
    are partial rows of ``TableCombine``. For ``retract_when_changed`` and ``kind`` see ``TableOutput``. ``ttl_us``: a
    key is deleted when ``NEWEST``, one of the aggregates, is so much older than the watermark."""

    def __init__(
        self,
        keys: Sequence[str],
        aggregates: Sequence[Aggregate],
        schema: pa.Schema,
        mode: TableMode,
        weighted: bool = False,
        combined: bool = False,
        retract_when_changed: Sequence[str] | None = None,
        kind: str | None = None,
        table_keys: Sequence[str] = (),
        ttl_us: int | None = None,
    ) -> None:
        added = [aggregate for aggregate in aggregates if aggregate.retractable or not weighted]
        self._input = Partials(keys, added)
        self._distinct = DistinctCounts(keys, added, forgets=ttl_us is not None)
        self._retractions = Retractions(keys, aggregates if weighted else (), table_keys)
        self._partials = Partials(keys, counting(aggregates))
        self._merged = Partials(keys, counting([a for a in aggregates if a in added or a.function == "count_distinct"]))
        self._output = TableOutput(schema, mode, retract_when_changed, kind)
        self._weighted = weighted
        self._combined = combined
        self._table = KeyedRows(keys)
        super().__init__(keys, self._table)
        self._arrivals = Arrivals(aggregates)
        self._expiry = Expiry(ttl_us, _NEWEST, stays_at_end=True)

    @property
    def final(self) -> bool:
        return self._output.mode == "at_end"

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        if rows.num_rows == 0:
            return
        if self._combined:
            partial = self._input.merge_by_key(rows)
        else:
            partial = combined(self._input, self._arrivals.numbered(rows), self._weighted)
        if not self._expiry.none:
            self._delete(self._expired_before(partial))
        partial = self._distinct.counted(with_groups(partial, self._partials.keys, self.ctx.key_groups))
        change = self._upsert(partial, self._retractions.changed(rows, partial, self.ctx.key_groups))
        if self._output.compares:
            before, deleted = (None if rows is None else self._finish(rows) for rows in (change.before, change.deleted))
            found = self._output.changed(before, self._finish(change.after), change.replaced, deleted)
            if found is not None:
                self.out.emit(found)
        elif self._output.mode == "changes":
            self.out.emit(self._finish(change.after))

    def on_watermark(self, watermark: int) -> int:
        self._delete(self._expiry.due(self._table, watermark))
        return watermark

    def on_end(self) -> None:
        if self._output.mode != "at_end" or self._table.rows == 0:
            return
        numbers = self._table.all_numbers()
        if by := self._sort_keys:
            numbers = numbers[order_by(self._table.places(numbers, by))]
        for part in parted(numbers):
            self.out.emit(self._finish(self._table.take(part)))

    @property
    def _sort_keys(self) -> list[str]:
        """The keys by which the table is sorted: first those that are in the results."""
        return sorted(self._partials.keys, key=lambda key: key not in self._output.rows.names)

    def tables(self, inputs: Sequence[pa.Schema]) -> Mapping[str, pa.Schema]:
        partial = self._distinct.counted_schema(grouped_schema(self._input.stored_schema(inputs[0], ())))
        if self._retractions.none:
            return self.tables_of(partial)
        whole = pa.schema([*partial, *self._retractions.fields(inputs[0])])
        return {**self.tables_of(whole), **self._retractions.tables(inputs[0])}

    @property
    def partwise(self) -> bool:
        """Not with values of a key, which are rows of their own, nor if keys expire."""
        return self._distinct.none and self._retractions.none and self._expiry.none

    def values(self) -> dict[str, Any]:
        return self._arrivals.values()

    def snapshot(self) -> OperatorState:
        rows = self._table.snapshot(self._arrivals.values())
        return united(rows, self._distinct.snapshot(), self._retractions.snapshot())

    def restore(self, parts: Sequence[OperatorState]) -> None:
        self.restore_parts(parts, lambda: self._table.restore(parts, self.ctx.groups))
        self._distinct.restore(parts, self.ctx.groups)
        self._retractions.restore(parts, self.ctx.groups)
        self._arrivals.restore(parts)
        self._expiry.restored()

    def _expired_before(self, partial: pa.RecordBatch) -> Ints:
        """The rows whose keys have expired before the newest of these."""
        of, numbers = self._table.find(partial)
        newest = times_of(partial, _NEWEST)
        return self._expiry.among(self._table, numbers, self.ctx.watermark, newest[of])

    def _delete(self, numbers: Ints) -> None:
        """Deletes these rows of the table, as their keys have expired."""
        for part in parted(numbers):
            gone = self._table.take(part)
            self._distinct.forget(gone)
            if self._output.compares:
                nothing = self._finish(gone.slice(0, 0))
                found = self._output.changed(None, nothing, np.zeros(0, bool), self._finish(gone))
                assert found is not None
                self.out.emit(found)
        self._table.remove(numbers)
        self._table.compact()

    def _upsert(self, partial: pa.RecordBatch, accumulators: Sequence[Replaced]) -> _Upserted:
        """Merges partial rows of distinct keys into the table, with ``accumulators`` that are not merged. Results are
        in the order of ``partial``, whatever the order of the table."""
        before, after, existed = merged_with(self._table, replaced(partial, accumulators), self._merged)
        after = replaced(after, [found for found in accumulators if not found.differences])
        upserted = _Upserted(before if before.num_rows else None, after, existed)
        if self._weighted:
            upserted = upserted.without_empty()
        self._table.append(upserted.after)
        self._table.compact()
        if self.in_parts:
            if not upserted.replaced.all():
                self.changed(upserted.after.filter(pa.array(~upserted.replaced)))
            if upserted.deleted is not None:
                self.changed(upserted.deleted)
        return upserted

    def _finish(self, partial: pa.RecordBatch) -> pa.RecordBatch:
        return self._partials.finish(partial, self._output.rows, {})


def combined_table_schema(rows: pa.Schema, keys: Sequence[str], aggregates: Sequence[Aggregate]) -> pa.Schema:
    """The schema that ``TableCombine`` emits for rows of a schema."""
    return pa.schema(Partials(keys, aggregates).fields(rows, []))
