"""Group numbers: dense integers for the rows of a batch that are equal in some columns.

All aggregates build on this. Integers in a narrow range (ids, times) are numbered by their offset, in their own order;
all other values by Arrow's dictionary encoding, in order of first appearance. In both cases the numbers depend on the
values alone, not on threads or hash seeds. Null is a value of its own, and so is NaN; -0.0 equals 0.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from clonos_py.columns.canonical import canonical
from clonos_py.columns.kernels.library import Library, check_rows, library, made, pointer
from clonos_py.columns.offsets import SPARE_SLOTS, narrow_range
from clonos_py.columns.views import Column, Ints, fixed, is_integral, is_one_text, plain
from clonos_py.model.errors import GraphError


class Groups(NamedTuple):
    """``ids[row]`` is the group of a row, 0 to ``size`` - 1; ``first[group]`` is its first row."""

    ids: Ints
    size: int
    first: Ints

    def last(self) -> Ints:
        """By group, its last row."""
        found = np.zeros(self.size, np.int64)
        found[self.ids] = np.arange(len(self.ids))  # of several assignments to one index the last wins
        return found


def group(columns: Sequence[Column | Ints], rows: int) -> Groups:
    """The groups of rows that are equal in all columns; without columns all rows are one group.

    Raises GraphError for nested columns.
    """
    if not columns:
        return _numbered(np.zeros(rows, np.int64), min(rows, 1))
    found = _group_one(columns[0])
    for column in columns[1:]:
        other = _group_one(column)
        if found.size == 1:
            found = other
        elif other.size > 1:
            found = _group_pairs(found, other)
    return found


def group_integers(values: Ints) -> Groups:
    """The groups of equal integers."""
    if len(values) and (native := library()) is not None:
        return _group_natively(native, values, None, 1)
    return numbered_integers(values)


def _group_pairs(one: Groups, other: Groups) -> Groups:
    """The groups of rows that have the same group in both."""
    if len(one.ids) and (native := library()) is not None:
        return _group_natively(native, one.ids, other.ids, other.size)
    return numbered_integers(one.ids * other.size + other.ids)


def _group_natively(native: Library, high: Ints, low: Ints | None, size: int) -> Groups:
    """The groups of equal integers ``high * size + low``, by the kernel in ``kernels/group.c``."""
    high, rows = np.ascontiguousarray(high, np.int64), len(high)
    check_rows(rows)
    ids, first = np.empty(rows, np.int64), np.empty(rows, np.int64)
    integers = pointer(high, np.int64, rows), pointer(low, np.int64, rows), size
    found = native.of(rows).clonos_group(
        *integers, rows, SPARE_SLOTS, pointer(ids, np.int64, rows), pointer(first, np.int64, rows)
    )
    return Groups(ids, made(found), first[:found].copy())


def numbered_integers(values: Ints) -> Groups:
    """The reference of the kernel: the same groups with the same numbers in NumPy."""
    if len(values) == 0:
        return _numbered(values, 0)
    slots = narrow_range(values)
    if slots is None:
        return _encode(pa.array(values))
    ids = values - slots.start
    present = np.flatnonzero(np.bincount(ids, minlength=len(slots)))
    if len(present) < len(slots):
        rank = np.empty(len(slots), np.int64)
        rank[present] = np.arange(len(present))
        ids = rank[ids]
    return _numbered(ids, len(present))


def _group_one(column: Column | Ints) -> Groups:
    if isinstance(column, np.ndarray):
        return group_integers(column)
    column = plain(column)
    if is_integral(column.type) and column.null_count == 0:
        return group_integers(fixed(column).astype(np.int64, copy=False))
    if is_one_text(column):
        return _numbered(np.zeros(len(column), np.int64), 1)
    return _encode(column)


def _encode(column: Any) -> Groups:
    if pa.types.is_nested(column.type):
        raise GraphError(f"a column of type {column.type} cannot be a key: use numbers, text, bytes or times")
    if pa.types.is_floating(column.type):
        column = canonical(column)
    encoded = column.dictionary_encode(null_encoding="encode")
    return _numbered(fixed(encoded.indices).astype(np.int64), len(encoded.dictionary))


def _numbered(ids: Ints, size: int) -> Groups:
    first = np.empty(size, np.int64)
    first[ids[::-1]] = np.arange(len(ids) - 1, -1, -1)  # numpy keeps the last of several assignments to one place
    return Groups(ids, size, first)
