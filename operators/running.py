"""Running aggregates: each row goes out with the aggregates of the rows of its key so far, itself included.

Aggregates are those of ``RUNNING``. The rows of a batch are one partial result each. These are merged with the ones
before them of the same key, at distances of 1, 2, 4 rows and so on: a batch costs a few merges of columns, however many
of its rows have one key. Sums of floats and moments are added row by row instead, since another order of additions
would give another sum. Of sketches each row would need its own. So all results of a batch are computed from the
sketches before it and the values in it, and only the last sketch of a key is made. Results do not depend on how rows
are cut into batches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from clonos_py.columns.grouping import Groups
from clonos_py.columns.ordering import inverse, stable_order
from clonos_py.columns.running import RUNNING_MOMENTS, running_moments, running_sums, started_moments
from clonos_py.columns.running_sketches import running_distinct_counts, running_quantiles
from clonos_py.columns.views import Ints, concat, take
from clonos_py.model.aggregates import Aggregate
from clonos_py.model.operators import Operator
from clonos_py.model.state import OperatorState
from clonos_py.operators.aggregation import ROWS_COLUMN, Partials
from clonos_py.operators.arrivals import Arrivals
from clonos_py.operators.keyed_chunks import grouped_schema, with_groups
from clonos_py.operators.keyed_rows import ROWS_TABLE, KeyedRows

_SKETCHES: Mapping[str, Callable[[Any, Ints, Aggregate], Any]] = {
    "values": lambda parts, ids, aggregate: running_quantiles(parts, ids, aggregate.option or 0.0),
    "registers": lambda parts, ids, _: running_distinct_counts(parts, ids),
}


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
        single = self._single(rows)
        groups = self._partials.groups(single)
        known, before = self._before(single, groups)
        ids = np.concatenate([known, groups.ids])
        order = stable_order(ids)
        ordered, ids, back = concat([before, single]).take(order), ids[order], inverse(order)[len(known) :]
        found = self._run(ordered, ids)
        last = groups.last()
        kept = self._with_sketches(found.take(back[last]), ordered, Groups(ids, groups.size, groups.first))
        self._keep(kept.take(stable_order(last)))
        aggregates = {aggregate.name for aggregate in self._partials.aggregates}
        columns = {name: rows.column(name) for name in self._schema.names if name not in aggregates}
        columns |= {name: take(result, back) for name, result in self._of_sketches(ordered, ids).items()}
        self.out.emit(self._partials.finish(found.take(back), self._schema, columns))

    def tables(self, inputs: Sequence[pa.Schema]) -> Mapping[str, pa.Schema]:
        stored = self._partials.stored_schema(inputs[0], ())
        for name in self._of_kind("moments"):
            stored = stored.set(stored.get_field_index(name), pa.field(name, RUNNING_MOMENTS))
        return {ROWS_TABLE: grouped_schema(stored)}

    def snapshot(self) -> OperatorState:
        return self._known.snapshot(self._arrivals.values())

    def restore(self, parts: Sequence[OperatorState]) -> None:
        self._known.restore(parts, self.ctx.groups)
        self._arrivals.restore(parts)

    def _single(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Each row as a partial row."""
        numbers = np.arange(rows.num_rows)
        single = self._partials.combine(self._arrivals.numbered(rows), Groups(numbers, rows.num_rows, numbers), {})
        for name in self._of_kind("moments"):
            single = single.set_column(single.schema.get_field_index(name), name, started_moments(single.column(name)))
        return with_groups(single, self._partials.keys, self.ctx.key_groups)

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

    def _run(self, ordered: pa.RecordBatch, ids: Ints) -> pa.RecordBatch:
        """Each partial row merged with all earlier ones of its group, but for sketches."""
        starts = np.concatenate([[0], np.flatnonzero(ids[1:] != ids[:-1]) + 1])
        place = np.arange(len(ids)) - np.repeat(starts, np.diff(np.append(starts, len(ids))))
        merged, distance = ordered.select(self._exact(ordered.schema)), 1
        while distance <= place.max():
            merged = self._merged_at(merged, np.flatnonzero(place >= distance), distance)
            distance *= 2
        columns = {name: merged.column(name) for name in merged.schema.names}
        columns |= {name: running_sums(ordered.column(name), ids) for name in self._floats(ordered.schema)}
        columns |= {name: running_moments(ordered.column(name), ids) for name in self._of_kind("moments")}
        columns = {name: columns.get(name, ordered.column(name)) for name in ordered.schema.names}
        return pa.RecordBatch.from_arrays(list(columns.values()), schema=ordered.schema)

    def _of_sketches(self, ordered: pa.RecordBatch, ids: Ints) -> dict[str, Any]:
        """By aggregate of a sketch: its result for each row."""
        return {
            aggregate.name: _SKETCHES[kind](ordered.column(name), ids, aggregate)
            for name, kind, aggregate in self._partials.accumulators
            if kind in _SKETCHES
        }

    def _with_sketches(self, kept: pa.RecordBatch, ordered: pa.RecordBatch, groups: Groups) -> pa.RecordBatch:
        """The last row of each group, with the merged sketches of all."""
        if not (names := self._of_kind(*_SKETCHES)):
            return kept
        merged = self._partials.merge(ordered.select(names), groups)
        return pa.RecordBatch.from_arrays(
            [merged.column(name) if name in names else kept.column(name) for name in kept.schema.names],
            schema=kept.schema,
        )

    def _of_kind(self, *kinds: str) -> list[str]:
        """The accumulators of these kinds."""
        return [found.name for found in self._partials.accumulators if found.kind in kinds]

    def _floats(self, partial: pa.Schema) -> list[str]:
        """The sums that have to be added in the order of rows."""
        return [name for name in self._of_kind("sum") if pa.types.is_floating(partial.field(name).type)]

    def _exact(self, partial: pa.Schema) -> list[str]:
        """The columns of which partial results may be merged in any order with the same result, at any distance."""
        others = {*self._floats(partial), *self._of_kind("moments", *_SKETCHES)}
        return [ROWS_COLUMN, *(found.name for found in self._partials.accumulators if found.name not in others)]

    def _merged_at(self, partial: pa.RecordBatch, later: Ints, distance: int) -> pa.RecordBatch:
        """The rows ``later`` merged with the row that far before each."""
        numbers = np.arange(len(later))
        pairs = concat([partial.take(later - distance), partial.take(later)])
        found = self._partials.merge(pairs, Groups(np.concatenate([numbers, numbers]), len(later), numbers))
        places = np.arange(partial.num_rows)
        places[later] = partial.num_rows + numbers
        return concat([partial, found]).take(places)
