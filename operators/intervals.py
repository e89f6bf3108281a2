"""Sessions as time intervals per key: merges intervals that overlap or touch."""

from __future__ import annotations

import numpy as np

from clonos_py.columns.grouping import Groups
from clonos_py.columns.ordering import stable_order
from clonos_py.columns.views import Bools, Ints
from clonos_py.model.hidden import hidden

START_COLUMN = hidden("start")
"""int64 column of every session: the time of its first row, in microseconds."""
END_COLUMN = hidden("end")
"""int64 column of every session: the time of its last row plus the gap, in microseconds."""
SESSION_COLUMNS = (START_COLUMN, END_COLUMN)


def merge_intervals(keys: Groups, starts: Ints, ends: Ints) -> tuple[Groups, Ints, Ints]:
    """Merges the intervals [start, end) of a key that overlap or touch, directly or through others.

    Returns the groups of rows that form one interval (``first`` is the row that starts it), ordered by key, then by
    start, and the start and end of each.
    """
    order = _by_key_and_start(keys, starts)
    ids, starts, ends = keys.ids[order], starts[order], ends[order]
    new_key = np.ones(len(ids), bool)
    np.not_equal(ids[1:], ids[:-1], out=new_key[1:])
    opens = new_key.copy()
    opens[1:] |= starts[1:] > _reached(ids, ends, new_key)[:-1]
    opening = np.flatnonzero(opens)
    numbers = np.empty(len(ids), np.int64)
    numbers[order] = np.cumsum(opens) - 1
    merged_ends = np.maximum.reduceat(ends, opening) if len(opening) else ends
    return Groups(numbers, len(opening), order[opening]), starts[opening], merged_ends


def _by_key_and_start(keys: Groups, starts: Ints) -> Ints:
    if (starts[1:] >= starts[:-1]).all():
        return stable_order(keys.ids)
    by_start = stable_order(starts)
    return by_start[stable_order(keys.ids[by_start])]


def _reached(ids: Ints, ends: Ints, new_key: Bools) -> Ints:
    """By row: the highest end of the key's intervals up to this row. Rows are sorted by key."""
    if (new_key[1:] | (ends[1:] >= ends[:-1])).all():
        return ends
    distinct, ranks = np.unique(ends, return_inverse=True)
    return distinct[np.maximum.accumulate(ids * len(distinct) + ranks) - ids * len(distinct)]
