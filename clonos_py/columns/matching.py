"""Equi-join of two batches: the pairs of rows with equal keys.

The pairs and their order are the same on every machine. As in SQL, null equals nothing. As in the key hash, -0.0 equals
0.0 and NaN equals NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from clonos_py.columns.hash_index import new_index
from clonos_py.columns.index import expand
from clonos_py.columns.keys import hash_rows
from clonos_py.columns.ordering import stable_order
from clonos_py.columns.views import Bools, Column, Ints, fixed, is_integral, plain, take, valid


def match(
    left: pa.RecordBatch, left_keys: Sequence[str], right: pa.RecordBatch, right_keys: Sequence[str]
) -> tuple[Ints, Ints]:
    """Pairs (row of left, row of right) with equal keys, in the order of left, then right."""
    left_rows, right_rows = with_keys(left, left_keys), with_keys(right, right_keys)
    left, right = _only(left, left_keys, left_rows), _only(right, right_keys, right_rows)
    if len(left_keys) == 1 and _comparable_as_integers(left.column(0).type, right.column(0).type):
        pairs = _match_integers(fixed(left.column(0)), fixed(right.column(0)))
    else:
        pairs = _match_hashes(left, left_keys, right, right_keys)
    return _origin(pairs[0], left_rows), _origin(pairs[1], right_rows)


def with_keys(batch: pa.RecordBatch, keys: Sequence[str]) -> Ints | None:
    """The rows without a null key; None if these are all rows."""
    masks = [mask for key in keys if (mask := valid(batch.column(key))) is not None]
    return np.flatnonzero(np.logical_and.reduce(masks)) if masks else None


def equal_rows(
    left: pa.RecordBatch,
    left_keys: Sequence[str],
    left_rows: Ints,
    right: pa.RecordBatch,
    right_keys: Sequence[str],
    right_rows: Ints,
    nulls_equal: bool = False,
) -> Bools:
    """Whether the keys of each pair of rows are equal. Null equals nothing, or null if ``nulls_equal``."""
    equal = np.ones(len(left_rows), bool)
    for left_key, right_key in zip(left_keys, right_keys, strict=True):
        a, b = plain(left.column(left_key)), plain(right.column(right_key))
        if is_integral(a.type) and is_integral(b.type):
            same = _equal_integers(a, left_rows, b, right_rows)
        else:
            same = _equal_values(take(a, left_rows), take(b, right_rows))
        left_valid, right_valid = valid(a), valid(b)
        if nulls_equal and left_valid is not None and right_valid is not None:
            same |= ~(left_valid[left_rows] | right_valid[right_rows])
        equal &= same
    return equal


def _only(batch: pa.RecordBatch, keys: Sequence[str], rows: Ints | None) -> pa.RecordBatch:
    batch = batch.select(list(dict.fromkeys(keys)))
    return batch if rows is None else batch.take(rows)


def _origin(rows: Ints, kept: Ints | None) -> Ints:
    return rows if kept is None else kept[rows]


def _comparable_as_integers(left: pa.DataType, right: pa.DataType) -> bool:
    if left == right:
        return is_integral(left)
    return pa.types.is_signed_integer(left) and pa.types.is_signed_integer(right)


def _match_integers(left: Ints, right: Ints) -> tuple[Ints, Ints]:
    order = stable_order(right)
    ordered = right[order]
    if len(right) == 0:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    starts = np.searchsorted(ordered, left)
    hits = np.flatnonzero(ordered[np.minimum(starts, len(right) - 1)] == left)
    ends = np.searchsorted(ordered, left[hits], side="right")
    positions, places = expand(starts[hits], ends - starts[hits])
    return hits[positions], order[places]


def _match_hashes(
    left: pa.RecordBatch, left_keys: Sequence[str], right: pa.RecordBatch, right_keys: Sequence[str]
) -> tuple[Ints, Ints]:
    index = new_index()
    index.append(hash_rows(right, right_keys))
    left_rows, right_rows = index.probe(hash_rows(left, left_keys))
    equal = equal_rows(left, left_keys, left_rows, right, right_keys, right_rows)
    return left_rows[equal], right_rows[equal]


def _equal_integers(left: Column, left_rows: Ints, right: Column, right_rows: Ints) -> Bools:
    """Compares 64-bit words. If only one side is unsigned, words that are negative when signed are not equal."""
    a, b = (
        fixed(array).take(rows).astype(np.int64, copy=False) for array, rows in ((left, left_rows), (right, right_rows))
    )
    equal: Bools = a == b
    if pa.types.is_unsigned_integer(left.type) != pa.types.is_unsigned_integer(right.type):
        equal &= a >= 0
    for array, rows in ((left, left_rows), (right, right_rows)):
        mask = valid(array)
        if mask is not None:
            equal &= mask[rows]
    return equal


def _equal_values(left: Any, right: Any) -> Bools:
    if pa.types.is_nested(left.type):
        return _equal_nested(left, right)
    equal: Any = pc.equal(left, right)
    if pa.types.is_floating(left.type) and pa.types.is_floating(right.type):
        equal = pc.or_(equal, pc.and_(pc.is_nan(left), pc.is_nan(right)))
    found: Bools = equal.fill_null(False).to_numpy(zero_copy_only=False)
    return found


def _equal_nested(left: Any, right: Any) -> Bools:
    """Compares lists and structs with Polars, since Arrow does not compare them."""
    import polars as pl

    equal: Any = pl.Series(pl.from_arrow(left)) == pl.Series(pl.from_arrow(right))
    found: Bools = equal.fill_null(False).to_numpy()
    return found
