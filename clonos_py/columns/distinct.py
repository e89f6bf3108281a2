"""The distinct values of each group as a list, for ``count_distinct``: partial lists are merged, then counted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from clonos_py.columns.grouping import Groups, group
from clonos_py.columns.ordering import stable_order
from clonos_py.columns.views import Column, Ints, offsets, plain, take, valid


def distinct_values(column: Column, groups: Groups) -> Any:
    """The distinct values of each group, without nulls."""
    column = plain(column)
    mask = valid(column)
    if mask is None:
        return _lists(column, groups.ids, groups.size)
    return _lists(take(column, np.flatnonzero(mask)), groups.ids[mask], groups.size)


def united(lists: Column, groups: Groups) -> Any:
    """Merges the lists of each group into one list of distinct values."""
    values, rows = unrolled(lists)
    return _lists(values, groups.ids[rows], groups.size)


def unrolled(lists: Any) -> tuple[Any, Ints]:
    """The elements of all lists, and for each the row of its list."""
    bounds = offsets(lists)
    values = lists.values.slice(bounds[0], bounds[-1] - bounds[0])
    return values, np.repeat(np.arange(len(lists)), np.diff(bounds))


def _lists(values: Any, ids: Ints, size: int) -> Any:
    pairs = group([ids, values], len(values))
    kept = pairs.first[stable_order(ids[pairs.first])]
    bounds = np.searchsorted(ids[kept], np.arange(size + 1))
    return pa.ListArray.from_arrays(pa.array(bounds, pa.int32()), take(values, kept))
