"""What has changed between two states of an operator: the rows that only one of them has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from clonos_py.columns.grouping import Groups, group
from clonos_py.columns.ordering import stable_order
from clonos_py.model.windows import WINDOW_END, WINDOW_START
from clonos_py.stored_state.attributes import as_json
from clonos_py.stored_state.columns import free_name

CHANGE = "change"
ADDED, REMOVED, BEFORE, AFTER = "added", "removed", "before", "after"
"""What the column says: a row that is new, a row that is gone, and one that was replaced, as it was and as it is."""


def difference(old: pa.Table, new: pa.Table, keys: Sequence[str]) -> pa.Table:
    """The rows of which one table has more than the other, with the column ``change`` first. Rows of both tables that
    are equal in ``keys``, and in the window if they have one, are the same row before and after. Rows are in the order
    of their keys' first appearance."""
    both = pa.concat_tables([old, new], promote_options="permissive").combine_chunks()
    is_new = np.arange(both.num_rows) >= old.num_rows
    rows = _groups(both, both.column_names)
    surplus = np.bincount(rows.ids[is_new], minlength=rows.size) - np.bincount(rows.ids[~is_new], minlength=rows.size)
    identity = [name for name in (*keys, WINDOW_START, WINDOW_END) if name in both.column_names]
    identities = (
        _groups(both.take(pa.array(rows.first, pa.int64())), identity).ids if identity else np.arange(rows.size)
    )
    has = [np.bincount(identities, sign * surplus > 0, minlength=rows.size) > 0 for sign in (-1, 1)]
    replaced = (has[0] & has[1])[identities] if identity else np.zeros(rows.size, bool)
    differing = np.flatnonzero(surplus)
    differing = differing[np.lexsort((surplus[differing] > 0, rows.first[differing], identities[differing]))]
    differing = np.repeat(differing, np.abs(surplus[differing]))
    names = np.where(replaced, np.where(surplus > 0, AFTER, BEFORE), np.where(surplus > 0, ADDED, REMOVED))
    found = both.take(pa.array(rows.first[differing], pa.int64()))
    return found.add_column(0, free_name(CHANGE, found.column_names), pa.array(names[differing].tolist(), pa.string()))


def _groups(table: pa.Table, columns: Sequence[str]) -> Groups:
    """Groups equal rows. Nested values are compared as text."""
    values: list[Any] = []
    for name in columns:
        column: Any = table.column(name).combine_chunks()
        values.append(pa.array(list(map(as_json, column.to_pylist()))) if pa.types.is_nested(column.type) else column)
    found = group(values, table.num_rows)
    order = stable_order(found.first)  # numbers by first appearance
    rank = np.empty(found.size, np.int64)
    rank[order] = np.arange(found.size)
    return Groups(rank[found.ids], found.size, found.first[order])
