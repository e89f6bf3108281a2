"""A row for each element of a list."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from clonos_py.columns.ordering import stable_order
from clonos_py.columns.views import Ints, take
from clonos_py.model.operators import Operator
from clonos_py.operators.pairs import EMIT_ROWS, without_match


class Explode(Operator):
    """Emits a row for each element of the lists in ``column``, in order: the element in this column, the values of the
    row in all others of ``schema``. ``keep_empty``: a row whose list is empty or null is emitted once, with null."""

    def __init__(self, column: str, schema: pa.Schema, keep_empty: bool = False) -> None:
        self._column, self._schema, self._keep_empty = column, schema, keep_empty

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        lists: Any = rows.column(self._column)
        elements: Any = lists.flatten()
        parents: Ints = pc.list_parent_indices(lists).to_numpy(zero_copy_only=False).astype(np.int64)
        numbers = pa.array(np.arange(len(parents)), pa.int64())
        if self._keep_empty:
            alone = without_match(parents, rows.num_rows)
            order = stable_order(np.concatenate([parents, alone]))
            parents = np.concatenate([parents, alone])[order]
            numbers = pa.array(order, pa.int64(), mask=order >= len(elements))
        for start in range(0, len(parents), EMIT_ROWS):
            self._emit(rows, elements.take(numbers.slice(start, EMIT_ROWS)), parents[start : start + EMIT_ROWS])

    def _emit(self, rows: pa.RecordBatch, elements: Any, parents: Ints) -> None:
        columns = [
            elements if name == self._column else take(rows.column(name), parents) for name in self._schema.names
        ]
        self.out.emit(pa.RecordBatch.from_arrays(columns, schema=self._schema))
