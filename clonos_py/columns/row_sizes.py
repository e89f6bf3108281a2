"""The bytes that each row of a batch takes in memory: values and offsets, without null masks and padding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from clonos_py.columns.views import Ints, offsets

_OFFSETS_32 = (pa.types.is_string, pa.types.is_binary, pa.types.is_list, pa.types.is_map)
_OFFSETS_64 = (pa.types.is_large_string, pa.types.is_large_binary, pa.types.is_large_list)


def row_sizes(rows: pa.RecordBatch) -> Ints:
    """By row: its size in bytes. What several rows share, such as the values of a dictionary, does not count."""
    found = np.zeros(rows.num_rows, np.int64)
    for column in rows.columns:
        found += _sizes(column)
    return found


def _sizes(column: Any) -> Ints:
    kind = column.type
    if isinstance(column, pa.ExtensionArray):
        return _sizes(column.storage)
    if isinstance(column, pa.DictionaryArray):
        return _sizes(column.indices)
    width = 4 if any(applies(kind) for applies in _OFFSETS_32) else 8
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        return width + _of_lists(column)
    if any(applies(kind) for applies in (*_OFFSETS_32, *_OFFSETS_64)):
        lengths: Ints = np.diff(offsets(column))
        return width + lengths
    if pa.types.is_struct(kind):
        return sum(map(_sizes, column.flatten()), np.zeros(len(column), np.int64))
    try:
        return np.full(len(column), max(kind.bit_width // 8, 1), np.int64)
    except ValueError:  # a type of no fixed width, which state seldom has
        return np.full(len(column), column.nbytes // max(len(column), 1), np.int64)


def _of_lists(column: Any) -> Ints:
    """The sizes of the elements of each list."""
    bounds = offsets(column)
    inside = (column.keys, column.items) if pa.types.is_map(column.type) else (column.values,)
    sizes = np.zeros(bounds[-1] - bounds[0], np.int64)
    for values in inside:
        sizes += _sizes(values.slice(bounds[0], len(sizes)))
    totals = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    found: Ints = totals[bounds[1:] - bounds[0]] - totals[bounds[:-1] - bounds[0]]
    return found
