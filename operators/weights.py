"""Deltas between tables: each row has a weight, 1 for an inserted row and -1 for a deleted row."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from clonos_py.columns.grouping import group
from clonos_py.columns.views import concat, fixed
from clonos_py.model.tables import WEIGHT_COLUMN
from clonos_py.operators.aggregation import ROWS_COLUMN, Partials


def combined(partials: Partials, rows: pa.RecordBatch, weighted: bool) -> pa.RecordBatch:
    """Reduces a batch to one partial row per key. Rows with the weight -1 are subtracted."""
    if not weighted:
        return partials.combine_by_key(rows)
    present = fixed(rows.column(WEIGHT_COLUMN)) > 0
    new, deleted = rows.take(np.flatnonzero(present)), rows.take(np.flatnonzero(~present))
    parts = [partials.combine_by_key(new)] if new.num_rows else []
    parts += [_negated(partials, partials.combine_by_key(deleted))] if deleted.num_rows else []
    return partials.merge_by_key(concat(parts))


def last_of_each(rows: pa.RecordBatch, identity: Sequence[str]) -> pa.RecordBatch:
    """The last row of each identity in a batch."""
    groups = group([rows.column(key) for key in identity], rows.num_rows)
    if groups.size == rows.num_rows:
        return rows
    return rows.take(np.sort(groups.last()))


def _negated(partials: Partials, partial: pa.RecordBatch) -> pa.RecordBatch:
    """The partial rows with negated counts and sums."""
    signed = {ROWS_COLUMN, *(accumulator.name for accumulator in partials.accumulators)}
    columns = [
        pc.negate(column) if name in signed else column
        for name, column in zip(partial.schema.names, partial.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, names=partial.schema.names)
