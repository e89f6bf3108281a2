"""Encodes the changes of a table: as upserts, as a changelog with kinds, or as deltas for another table.

Deltas carry a weight: 1 for an inserted row, -1 for a deleted row. If the next operator identifies rows by the table's
keys, a later row replaces an earlier one. Then an earlier row must be deleted explicitly only if a column in
``retract_when_changed`` has changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from clonos_py.columns.matching import equal_rows
from clonos_py.columns.views import Bools, Ints, concat
from clonos_py.model.tables import (
    DELETE,
    INSERT,
    UPDATE,
    WEIGHT_COLUMN,
    TableMode,
    kind_schema,
    weighted_schema,
    without,
)


class TableOutput:
    """Encodes changes with ``schema``: the columns of the table, then the weight or the column ``kind``, if either is
    requested."""

    def __init__(
        self,
        schema: pa.Schema,
        mode: TableMode,
        retract_when_changed: Sequence[str] | None = None,
        kind: str | None = None,
    ) -> None:
        self.rows = without(without(schema, WEIGHT_COLUMN), kind)
        """The schema of the table's rows."""
        self.mode = mode
        self.compares = mode == "deltas" or kind is not None
        """Whether it needs the previous rows. Otherwise it emits all rows that may have changed, uncompared."""
        self._retract_when_changed = None if retract_when_changed is None else tuple(retract_when_changed)
        self._shows_deletions = kind is not None
        self._kind = kind if kind in schema.names else None

    def changed(
        self,
        before: pa.RecordBatch | None,
        after: pa.RecordBatch,
        replaced: Bools,
        deleted: pa.RecordBatch | None = None,
    ) -> pa.RecordBatch | None:
        """The output for a change; None if there is none. ``replaced``: which of the rows ``after`` replace a row of
        ``before``, in the same order. ``deleted``: the deleted rows."""
        places = np.flatnonzero(replaced)
        changed = np.ones(len(replaced), bool)
        if before is not None:
            changed[places] = ~self._equal(before, after, places, self.rows.names)
        removed = [deleted] if deleted is not None and deleted.num_rows else []
        if self.mode == "deltas":
            parts = [with_weight(rows, -1) for rows in removed]
            if before is not None:
                parts.append(with_weight(before.take(np.flatnonzero(self._left(before, after, places, changed))), -1))
            parts.append(with_weight(after.take(np.flatnonzero(changed)), 1))
        else:
            removed = removed if self._shows_deletions else []
            parts = [self._with_kinds(rows, np.full(rows.num_rows, DELETE)) for rows in removed]
            shown = np.flatnonzero(changed)
            parts.append(self._with_kinds(after.take(shown), np.where(replaced[shown], UPDATE, INSERT)))
        found = concat(parts)
        return found if found.num_rows else None

    def _left(self, before: pa.RecordBatch, after: pa.RecordBatch, places: Ints, changed: Bools) -> Bools:
        """Which of the rows ``before`` must be deleted explicitly."""
        if self._retract_when_changed is None:
            return changed[places]
        left: Bools = ~self._equal(before, after, places, self._retract_when_changed)
        return left

    def _equal(self, before: pa.RecordBatch, after: pa.RecordBatch, places: Ints, columns: Sequence[str]) -> Bools:
        every = np.arange(before.num_rows)
        return equal_rows(before, columns, every, after, columns, places, nulls_equal=True)

    def _with_kinds(self, rows: pa.RecordBatch, kinds: Any) -> pa.RecordBatch:
        if self._kind is None:
            return rows
        columns: list[Any] = [*rows.columns, pa.array(kinds, pa.string())]
        return pa.RecordBatch.from_arrays(columns, schema=kind_schema(rows.schema, self._kind))


def with_weight(rows: pa.RecordBatch, weight: int) -> pa.RecordBatch:
    columns: list[Any] = [*rows.columns, pa.array(np.full(rows.num_rows, weight, np.int8))]
    return pa.RecordBatch.from_arrays(columns, schema=weighted_schema(rows.schema))
