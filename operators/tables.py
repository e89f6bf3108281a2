"""Running aggregates without a window: a table with one row per key, which every batch updates.

In the mode ``changes`` each batch emits the new rows of the keys that it touched; in the mode ``at_end`` the whole
table comes out once, sorted by key (nulls last), when all input has ended. Other keys than the touched cost nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from clonos_py.columns.grouping import Groups, group
from clonos_py.columns.views import concat
from clonos_py.model.aggregates import Aggregate
from clonos_py.model.operators import Operator
from clonos_py.model.state import OperatorState
from clonos_py.operators.aggregation import Partials
from clonos_py.operators.keyed_chunks import with_groups
from clonos_py.operators.keyed_rows import KeyedRows


class TableAggregate(Operator):
    """``schema`` is filled by name from the keys and the aggregates. Without keys there is one row, once there is any
    input."""

    def __init__(
        self,
        keys: Sequence[str],
        aggregates: Sequence[Aggregate],
        schema: pa.Schema,
        mode: Literal["changes", "at_end"],
    ) -> None:
        self._partials = Partials(keys, aggregates)
        self._schema = schema
        self._mode = mode
        self._table = KeyedRows(keys)

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        if rows.num_rows == 0:
            return
        partial = self._partials.combine(rows, self._groups(rows), {})
        updated = self._upsert(with_groups(partial, self._partials.keys, self.ctx.key_groups))
        if self._mode == "changes":
            self.out.emit(self._partials.finish(updated, self._schema, {}))

    def on_end(self) -> None:
        if self._mode == "changes" or self._table.rows == 0:
            return
        results = self._partials.finish(concat(self._table.all()), self._schema, {})
        order: list[Any] = [(key, "ascending") for key in self._partials.keys if key in self._schema.names]
        self.out.emit(results.sort_by(order) if order else results)

    def snapshot(self) -> OperatorState:
        return self._table.snapshot({})

    def restore(self, parts: Sequence[OperatorState]) -> None:
        self._table.restore(parts, self.ctx.groups)

    def _groups(self, rows: pa.RecordBatch) -> Groups:
        return group([rows.column(key) for key in self._partials.keys], rows.num_rows)

    def _upsert(self, partial: pa.RecordBatch) -> pa.RecordBatch:
        """Merges partial rows of distinct keys into the table; gives the new rows of these keys."""
        _, touched = self._table.find(partial)
        if len(touched):
            touched = np.sort(touched)
            partial = concat([self._table.take(touched), partial])
            self._table.remove(touched)
            partial = self._partials.merge(partial, self._groups(partial))
        self._table.append(partial)
        self._table.compact()
        return partial
