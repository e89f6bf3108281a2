"""The distinct values of each group as a list, for ``count_distinct``: partial lists are merged, then counted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from clonos_py.columns.grouping import Groups, group
from clonos_py.columns.kernels.library import check_rows, library, made, pointer
from clonos_py.columns.ordering import stable_order
from clonos_py.columns.views import Column, Ints, fixed, is_integral, offsets, plain, take, valid

_OUT_OF_RANGE = -2
"""What the kernel returns for a group that there is not."""


def distinct_values(column: Column, groups: Groups) -> Any:
    """The distinct values of each group, in the order of their first rows, without nulls."""
    return _lists(plain(column), groups.ids, groups.size)


def united(lists: Column, groups: Groups) -> Any:
    """Merges the lists of each group into one list of distinct values, in the order in which they come first."""
    values, rows = unrolled(lists)
    return _lists(values, groups.ids[rows], groups.size)


def unrolled(lists: Any) -> tuple[Any, Ints]:
    """The elements of all lists, and for each the row of its list."""
    bounds = offsets(lists)
    values = lists.values.slice(bounds[0], bounds[-1] - bounds[0])
    return values, np.repeat(np.arange(len(lists)), np.diff(bounds))


def _lists(values: Any, ids: Ints, size: int) -> Any:
    """A list of the distinct values of each group."""
    kept, bounds = first_rows(ids, size, values)
    return pa.ListArray.from_arrays(pa.array(bounds, pa.int32()), take(values, kept))


def first_rows(ids: Ints, size: int, values: Any) -> tuple[Ints, Ints]:
    """The first row of each pair of a group and a value that is not null, by group, then in the order of rows; and
    where those of each group begin, and at last how many there are."""
    native = library()
    if native is None:
        return reference_first_rows(ids, size, values)
    rows = len(ids)
    check_rows(rows)
    integers = fixed(values).astype(np.int64, copy=False) if is_integral(values.type) else group([values], rows).ids
    integers, ids, mask = np.ascontiguousarray(integers), np.ascontiguousarray(ids, np.int64), valid(values)
    kept, bounds = np.empty(rows, np.int64), np.empty(size + 1, np.int64)
    read = pointer(ids, np.int64, rows), pointer(integers, np.int64, rows), pointer(mask, bool, rows), rows, size
    count = native.of(rows).clonos_distinct(*read, pointer(kept, np.int64, rows), pointer(bounds, np.int64, size + 1))
    if count == _OUT_OF_RANGE:
        raise IndexError(f"a row has a group that is not one of {size}")
    return kept[: made(count)], bounds


def reference_first_rows(ids: Ints, size: int, values: Any) -> tuple[Ints, Ints]:
    """The reference of the kernel in ``kernels/distinct.c``."""
    mask = valid(values)
    rows = np.arange(len(ids)) if mask is None else np.flatnonzero(mask)
    pairs = group([ids[rows], take(values, rows)], len(rows))
    first = rows[np.sort(pairs.first)]
    kept = first[stable_order(ids[first])]
    return kept, np.concatenate([[0], np.cumsum(np.bincount(ids[kept], minlength=size))])
