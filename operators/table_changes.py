"""Makes changes of a table from its deltas: of a table whose rows are filtered, computed or joined. Also merges the
deltas of a change into one, for a reader that must not find a row missing which another one replaces."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from clonos_py.columns.grouping import group
from clonos_py.columns.views import fixed
from clonos_py.model.operators import Operator
from clonos_py.model.tables import WEIGHT_COLUMN
from clonos_py.operators.table_output import TableOutput


class TableChanges(Operator):
    """Emits one change for each row that a batch of deltas changed, and none for a row that is the same afterwards.
    Keeps no state: the deltas of a row alternate between deleting and inserting. ``keys``: the columns that identify a
    row. ``output``: encodes a change."""

    def __init__(self, keys: Sequence[str], output: TableOutput) -> None:
        self._keys = tuple(keys)
        self._output = output

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        if rows.num_rows == 0:
            return
        groups = group([rows.column(key) for key in self._keys], rows.num_rows)
        last = groups.last()
        added = fixed(rows.column(WEIGHT_COLUMN)) > 0
        existed, exists = ~added[groups.first], added[last]
        rows = rows.select(self._output.rows.names)
        changed = self._output.changed(
            rows.take(groups.first[existed & exists]),
            rows.take(last[exists]),
            existed[exists],
            rows.take(groups.first[existed & ~exists]),
        )
        if changed is not None:
            self.out.emit(changed)
