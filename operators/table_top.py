"""Top-n over another table whose rows change and can be deleted, such as the top-n of running totals.

The input are deltas of that table: with weight 1 new rows, each of which replaces the row of the same identity, and
with weight -1 rows that were deleted or moved to another key. Rows that are equal in order are ranked by
``table_keys``, so the result depends on the set of rows alone, not on their order of arrival. A result row is
identified by its key and, if there may be several, its rank. A key that has fewer rows than before loses its last
ranks. The modes are those of ``tables``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from clonos_py.columns.grouping import group
from clonos_py.columns.views import fixed
from clonos_py.model.operators import Operator
from clonos_py.model.state import OperatorState
from clonos_py.model.tables import WEIGHT_COLUMN, SortKey, TableMode
from clonos_py.operators.first_rows import final_rows
from clonos_py.operators.keyed_chunks import grouped_schema, with_groups
from clonos_py.operators.keyed_rows import ROWS_TABLE
from clonos_py.operators.ranked_rows import FirstOfGroups, RankedRows
from clonos_py.operators.ranking import with_ranks
from clonos_py.operators.table_output import TableOutput
from clonos_py.operators.weights import last_of_each


class TableTop(Operator):
    """The operator. ``schema``, except the weight of deltas and the ``kind`` of changes, is filled by name from the
    input; ``rank``, if not None, is 1, 2, ... ``table_keys``: the columns that identify a row of the other table. For
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
        *,
        table_keys: Sequence[str],
    ) -> None:
        self._keys = tuple(keys)
        self._n = n
        self._output = TableOutput(schema, mode, retract_when_changed, kind)
        self._rank = rank
        total = [*order, *(SortKey(column) for column in table_keys)]
        columns = [name for name in self._output.rows.names if name != rank]
        self._ranked = RankedRows(keys, table_keys, n, total, columns)

    @property
    def final(self) -> bool:
        return self._output.mode == "at_end"

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        if rows.num_rows == 0:
            return
        rows = last_of_each(rows, self._ranked.identity)
        present = fixed(rows.column(WEIGHT_COLUMN)) > 0
        rows = with_groups(rows.select(self._ranked.columns), self._keys, self.ctx.key_groups)
        groups = group([rows.column(key) for key in self._keys], rows.num_rows)
        before, after = self._ranked.put(rows.take(groups.first), rows, groups.ids, present)
        if self._output.mode != "at_end":
            self._emit(before, after, groups.size, rows)

    def on_end(self) -> None:
        if self._output.mode == "at_end":
            kept, schema = self._ranked, self._output.rows
            for rows in final_rows(kept.rows, kept.ranking, self._n, self._keys, self._rank, schema):
                self.out.emit(rows)

    def tables(self, inputs: Sequence[pa.Schema]) -> Mapping[str, pa.Schema]:
        return {ROWS_TABLE: grouped_schema(inputs[0], self._ranked.columns)}

    def snapshot(self) -> OperatorState:
        return self._ranked.snapshot()

    def restore(self, parts: Sequence[OperatorState]) -> None:
        self._ranked.restore(parts, self.ctx.groups)

    def _emit(self, before: FirstOfGroups, after: FirstOfGroups, groups: int, rows: pa.RecordBatch) -> None:
        were, are = (np.bincount(found.groups, minlength=groups) for found in (before, after))
        replaced = after.ranks < were[after.groups]
        stays = before.ranks < are[before.groups]
        old = self._shown(before, rows)
        changed = self._output.changed(
            old.take(np.flatnonzero(stays)), self._shown(after, rows), replaced, old.take(np.flatnonzero(~stays))
        )
        if changed is not None:
            self.out.emit(changed)

    def _shown(self, found: FirstOfGroups, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The found rows with the columns of this table. ``rows``: any rows with the stored columns."""
        return with_ranks(
            rows.slice(0, 0) if found.rows is None else found.rows, self._rank, found.ranks, self._output.rows
        )
