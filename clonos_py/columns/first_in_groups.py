"""The first rows of groups, in the order of some columns: by the kernel in ``kernels/first.c``, or by sorting."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from clonos_py.columns.grouping import Groups
from clonos_py.columns.kernels.library import check_rows, library, made, pointer
from clonos_py.columns.ordering import order_by
from clonos_py.columns.views import Ints

_FEW = 32
"""The kernel has a list of so many rows for each group at most, and goes through it."""
_OUT_OF_RANGE = -2
"""What the kernel returns for a group that there is not."""


def first_in_groups(groups: Groups, keys: Sequence[Ints], n: int) -> Ints:
    """The rows that are among the first ``n`` of their group, in the order of rows. Within a group they are ordered by
    the first of ``keys``, then by the second, and so on; rows that are equal there, by their numbers."""
    native, rows = library(), len(groups.ids)
    if native is None or not 0 < n <= _FEW:
        return reference_first_in_groups(groups, keys, n)
    check_rows(rows)
    ids = np.ascontiguousarray(groups.ids, np.int64)
    ordered = [np.ascontiguousarray(key, np.int64) for key in keys]
    addresses = np.array([pointer(key, np.int64, rows) for key in ordered], np.uint64)
    first = np.empty(rows, bool)
    read = pointer(ids, np.int64, rows), rows, groups.size, pointer(addresses, np.uint64, 0), len(ordered), n
    returned = native.of(rows).clonos_first(*read, pointer(first, bool, rows))
    if returned == _OUT_OF_RANGE:
        raise IndexError(f"a row has a group that is not one of {groups.size}")
    made(returned)
    return np.flatnonzero(first)


def reference_first_in_groups(groups: Groups, keys: Sequence[Ints], n: int) -> Ints:
    """The reference of the kernel: by a stable sort."""
    order = order_by([groups.ids, *keys])
    return np.sort(order[places_in_groups(groups.ids[order])[0] < n])


def places_in_groups(ids: Ints) -> tuple[Ints, Ints]:
    """Of rows that are sorted by group: the place of each in its group, from 0, and where its group begins."""
    begins = np.ones(len(ids), bool)
    begins[1:] = ids[1:] != ids[:-1]
    starts = np.maximum.accumulate(np.where(begins, np.arange(len(ids)), 0))
    return np.arange(len(ids)) - starts, starts
