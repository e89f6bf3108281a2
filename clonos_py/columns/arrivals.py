"""The first value, the last value, and all values of each group, in order of arrival; and the first few by time.

Each value carries its arrival number, so that partial results can be merged in any order. A numbered value is a struct
of ``at`` and ``value``. Nulls do not count; a group without values gives null, or an empty list.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from clonos_py.columns.distinct import unrolled
from clonos_py.columns.grouping import Groups
from clonos_py.columns.ordering import order_by, stable_order
from clonos_py.columns.views import Column, Ints, fixed, plain, take, valid


def numbered(column: Column, arrivals: Column) -> Any:
    """The values with their arrival numbers; null where the value is null."""
    column = plain(column)
    mask = valid(column)
    missing = None if mask is None else pa.array(~mask)
    return pa.StructArray.from_arrays([arrivals, column], ["at", "value"], mask=missing)


def first(values: Column, groups: Groups) -> Any:
    """The numbered value with the lowest number in each group."""
    return _chosen(values, groups, latest=False)


def last(values: Column, groups: Groups) -> Any:
    """The numbered value with the highest number in each group."""
    return _chosen(values, groups, latest=True)


def collected(values: Column, groups: Groups) -> Any:
    """The numbered values of each group as a list."""
    mask = valid(values)
    rows = np.arange(len(values)) if mask is None else np.flatnonzero(mask)
    return _lists(take(values, rows), groups.ids[rows], groups.size)


def joined(lists: Column, groups: Groups) -> Any:
    """Joins the lists of each group into one."""
    values, rows = unrolled(lists)
    return _lists(values, groups.ids[rows], groups.size)


def timed(column: Column, times: Column, arrivals: Column) -> Any:
    """As ``numbered``, with a time by which values are ordered before their arrival."""
    values = numbered(column, arrivals)
    missing = values.is_null() if values.null_count else None
    parts = [times, values.field("at"), values.field("value")]
    return pa.StructArray.from_arrays(parts, ["time", "at", "value"], mask=missing)


def earliest(values: Any, ids: Ints, size: int, most: int) -> Any:
    """The first values with times of each group, at most so many, as a list."""
    mask = valid(values)
    rows = np.arange(len(values)) if mask is None else np.flatnonzero(mask)
    order = rows[order_by([ids[rows], fixed(values.field("time"))[rows], _numbers(values)[rows]])]
    of = ids[order]
    kept = np.arange(len(of)) - of.searchsorted(of) < most
    return _lists(take(values, order[kept]), of[kept], size)


def joined_earliest(lists: Column, groups: Groups, most: int) -> Any:
    """Joins lists of values with times, as far as these are the first of their group."""
    values, rows = unrolled(lists)
    return earliest(values, groups.ids[rows], groups.size, most)


def values_of(values: Any) -> Any:
    """The values without their numbers."""
    return pc.struct_field(values, "value")


def lists_of(lists: Any, kind: pa.DataType) -> Any:
    """The values of each list in order of arrival, as lists of type ``kind``."""
    values, rows = unrolled(lists)
    keys = [rows, _numbers(values)]
    if "time" in values.type.names:
        keys.insert(1, fixed(values.field("time")))
    order = order_by(keys)
    bounds = np.searchsorted(rows, np.arange(len(lists) + 1))
    inner = take(values_of(values), order)
    found: Any = pa.ListArray.from_arrays(pa.array(bounds, pa.int32()), inner)
    return found if found.type == kind else found.cast(kind)


def _chosen(values: Any, groups: Groups, latest: bool) -> Any:
    mask = valid(values)
    rows = np.arange(len(values)) if mask is None else np.flatnonzero(mask)
    order = stable_order(_numbers(values)[rows])
    rows = rows[order if latest else order[::-1]]
    chosen = np.full(groups.size, -1, np.int64)
    chosen[groups.ids[rows]] = rows  # numpy keeps the last of several assignments to one place
    return values.take(pa.array(chosen, mask=chosen < 0))


def _numbers(values: Any) -> Ints:
    found: Ints = fixed(values.field("at"))
    return found


def _lists(values: Any, ids: Ints, size: int) -> Any:
    order = stable_order(ids)
    bounds = np.searchsorted(ids[order], np.arange(size + 1))
    return pa.ListArray.from_arrays(pa.array(bounds, pa.int32()), take(values, order))
