"""Running aggregates: each row goes out with the aggregates of the rows of its key so far, itself included.

Aggregates are those of ``RUNNING``. The rows of a batch are one partial result each. These are merged with the ones
before them of the same key, at distances of 1, 2, 4 rows and so on: a batch costs a few merges of columns, however many
of its rows have one key. Sums of floats are added row by row instead, since another order of additions would give
another sum. So results do not depend on how rows are cut into batches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from clonos_py.columns.grouping import Groups
from clonos_py.columns.ordering import inverse, stable_order
from clonos_py.columns.views import Ints, concat
from clonos_py.model.aggregates import Aggregate
from clonos_py.model.operators import Operator
from clonos_py.model.state import OperatorState
from clonos_py.operators.aggregation import ROWS_COLUMN, Partials
from clonos_py.operators.arrivals import Arrivals
from clonos_py.operators.keyed_chunks import grouped_schema, with_groups
from clonos_py.operators.keyed_rows import ROWS_TABLE, KeyedRows


class RunningAggregate(Operator):
    """Emits a row for each row, with the columns of ``schema``: ``aggregates`` by name, all others from the row. The
    state holds one partial row per key."""

    def __init__(self, keys: Sequence[str], aggregates: Sequence[Aggregate], schema: pa.Schema) -> None:
        self._partials = Partials(keys, aggregates)
        self._schema = schema
        self._known = KeyedRows(keys)
        self._arrivals = Arrivals(aggregates)

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        if rows.num_rows == 0:
            return
        numbers = np.arange(rows.num_rows)
        single = self._partials.combine(self._arrivals.numbered(rows), Groups(numbers, rows.num_rows, numbers), {})
        single = with_groups(single, self._partials.keys, self.ctx.key_groups)
        groups = self._partials.groups(single)
        known, before = self._before(single, groups)
        found = self._run(concat([before, single]), np.concatenate([known, groups.ids])).slice(len(known))
        self._keep(found.take(np.sort(groups.last())))
        aggregates = {aggregate.name for aggregate in self._partials.aggregates}
        others = {name: rows.column(name) for name in self._schema.names if name not in aggregates}
        self.out.emit(self._partials.finish(found, self._schema, others))

    def tables(self, inputs: Sequence[pa.Schema]) -> Mapping[str, pa.Schema]:
        return {ROWS_TABLE: grouped_schema(self._partials.stored_schema(inputs[0], ()))}

    def snapshot(self) -> OperatorState:
        return self._known.snapshot(self._arrivals.values())

    def restore(self, parts: Sequence[OperatorState]) -> None:
        self._known.restore(parts, self.ctx.groups)
        self._arrivals.restore(parts)

    def _before(self, single: pa.RecordBatch, groups: Groups) -> tuple[Ints, pa.RecordBatch]:
        """The groups that have a state, and their partial rows, which leave the state."""
        known, numbers = self._known.find(single.select(list(self._partials.keys)).take(groups.first))
        if not len(numbers):
            return known, single.slice(0, 0)
        before = self._known.take(numbers)
        self._known.remove(np.sort(numbers))
        return known, before

    def _keep(self, partial: pa.RecordBatch) -> None:
        self._known.append(partial)
        self._known.compact()

    def _run(self, partial: pa.RecordBatch, ids: Ints) -> pa.RecordBatch:
        """Each partial row merged with all earlier ones of its group."""
        order = stable_order(ids)
        ordered, ids = partial.take(order), ids[order]
        starts = np.concatenate([[0], np.flatnonzero(ids[1:] != ids[:-1]) + 1])
        place = np.arange(len(ids)) - np.repeat(starts, np.diff(np.append(starts, len(ids))))
        merged, distance = ordered.select(self._exact(ordered.schema)), 1
        while distance <= place.max():
            merged = self._merged_at(merged, np.flatnonzero(place >= distance), distance)
            distance *= 2
        columns = {name: merged.column(name) for name in merged.schema.names}
        columns |= {name: _added(ordered.column(name), ids) for name in self._floats(ordered.schema)}
        columns = {name: columns.get(name, ordered.column(name)) for name in ordered.schema.names}
        return pa.RecordBatch.from_arrays(list(columns.values()), schema=ordered.schema).take(inverse(order))

    def _floats(self, partial: pa.Schema) -> list[str]:
        """The sums that have to be added in the order of rows."""
        sums = [name for name, kind, _ in self._partials.accumulators if kind == "sum"]
        return [name for name in sums if pa.types.is_floating(partial.field(name).type)]

    def _exact(self, partial: pa.Schema) -> list[str]:
        """The columns that may be merged in any order with the same result."""
        floats = self._floats(partial)
        return [ROWS_COLUMN, *(found.name for found in self._partials.accumulators if found.name not in floats)]

    def _merged_at(self, partial: pa.RecordBatch, later: Ints, distance: int) -> pa.RecordBatch:
        """The rows ``later`` merged with the row that far before each."""
        numbers = np.arange(len(later))
        pairs = concat([partial.take(later - distance), partial.take(later)])
        found = self._partials.merge(pairs, Groups(np.concatenate([numbers, numbers]), len(later), numbers))
        places = np.arange(partial.num_rows)
        places[later] = partial.num_rows + numbers
        return concat([partial, found]).take(places)


def _added(values: Any, ids: Ints) -> Any:
    """The sum of each value and all earlier ones with the same id, added in the order of rows."""
    import polars as pl

    columns = pl.DataFrame({"values": pl.from_arrow(values), "ids": ids})
    sums = columns.select(pl.col("values").cum_sum().forward_fill().over("ids")).to_series()
    return sums.to_arrow()
