"""Puts rows in the place of those of a table that have the same keys: as they are, or merged with them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from clonos_py.columns.grouping import Groups
from clonos_py.columns.views import Bools, Ints, concat
from clonos_py.operators.aggregation import Partials
from clonos_py.operators.keyed_rows import KeyedRows


class Merged(NamedTuple):
    """Rows of a table, each merged with a partial row, in the order of these. ``existed``: which of the rows ``after``
    have one in ``before``, which is in the same order."""

    before: pa.RecordBatch
    after: pa.RecordBatch
    existed: Bools


def merged_with(table: KeyedRows, partial: pa.RecordBatch, partials: Partials) -> Merged:
    """Removes the rows with the keys of ``partial``, which are distinct, from the table, and merges them with it. The
    order of the table has no influence on the result, which the caller appends to it."""
    of, touched = table.find(partial)
    existed = np.zeros(partial.num_rows, bool)
    if not len(touched):
        return Merged(partial.slice(0, 0), partial, existed)
    existed[of] = True
    before = table.take(touched[np.argsort(of)])
    table.remove(touched)
    known, every = np.flatnonzero(existed), np.arange(partial.num_rows)
    first = every + len(known)
    first[known] = np.arange(len(known))
    groups = Groups(np.concatenate([known, every]), partial.num_rows, first)
    return Merged(before, partials.merge(concat([before, partial]), groups), existed)


def put_rows(table: KeyedRows, rows: pa.RecordBatch, weights: Ints) -> None:
    """Puts rows, which have distinct keys, in the place of those with their keys. One whose weight is below 0 deletes
    the other."""
    table.remove(table.find(rows)[1])
    table.append(rows.take(np.flatnonzero(weights > 0)))
    table.compact()
