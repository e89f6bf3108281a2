"""What a commit of a table's changes leaves: of the rows of a key the last one, or its deletion."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from clonos_py.columns.grouping import group
from clonos_py.model.tables import CHANGE_COLUMN, DELETE


def last_of_keys(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """The last row of each key, deletions included. Raises GraphError for nested keys."""
    groups = group([rows.column(name).combine_chunks() for name in key], rows.num_rows)
    return rows.take(np.sort(groups.last()))


def last_changes(rows: pa.Table, key: Sequence[str]) -> tuple[pa.Table, pa.Table]:
    """The last row of each key: those that are there, and those that are deleted. Raises GraphError for nested keys."""
    last = last_of_keys(rows, key)
    if CHANGE_COLUMN not in rows.schema.names:
        return last, last.slice(0, 0)
    deleted = pc.equal(last.column(CHANGE_COLUMN), pa.scalar(DELETE))
    return last.filter(pc.invert(deleted)), last.filter(deleted)
