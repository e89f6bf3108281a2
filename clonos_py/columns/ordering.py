"""Stable sorting: equal values keep the order of their rows, so the result is the same on every machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from clonos_py.columns.kernels.library import check_rows, library, made, pointer
from clonos_py.columns.views import Column, Ints, fixed, is_integral, plain

_DIGIT_BITS = 16
_FEW_ROWS = 1_024


def stable_order(values: npt.NDArray[Any]) -> Ints:
    """The row numbers in the order of their values; equal values keep the order of their rows.

    As ``sorted_rows``, by the kernel in ``kernels/order.c`` where there is one.
    """
    native = library()
    if native is None or values.dtype != np.int64 or not len(values):
        return sorted_rows(values)
    values = np.ascontiguousarray(values)
    check_rows(len(values))
    order = np.empty(len(values), np.int64)
    made(
        native.of(len(values)).clonos_stable_order(
            pointer(values, np.int64, 0), len(values), pointer(order, np.int64, 0)
        )
    )
    return order


def sorted_rows(values: npt.NDArray[Any]) -> Ints:
    """The reference of the kernel: the stable order in NumPy.

    A radix sort over 16-bit digits of the offset to the least value. numpy sorts one digit in linear time, and ids and
    times of one batch seldom need more than two digits.
    """
    if len(values) < _FEW_ROWS:
        return np.argsort(values, kind="stable")
    low, high = values.min(), values.max()
    offsets = values.astype(np.uint64) - low.astype(np.uint64)
    bits = (int(high) - int(low)).bit_length()
    order = np.argsort(offsets.astype(np.uint16), kind="stable")
    for shift in range(_DIGIT_BITS, bits, _DIGIT_BITS):
        digit = (offsets >> np.uint64(shift)).astype(np.uint16)
        order = order[np.argsort(digit[order], kind="stable")]
    return order


def inverse(order: Ints) -> Ints:
    """The place of each row in an order: ``taken_in_order.take(inverse(order))`` are the rows as they were before."""
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    return places


def places(column: Column, descending: bool) -> Ints:
    """Integers whose order is that of the values, or the reverse; nulls and NaN come last in both cases."""
    column = plain(column)
    if is_integral(column.type) and not pa.types.is_unsigned_integer(column.type) and column.null_count == 0:
        values = fixed(column).astype(np.int64, copy=False)
        return ~values if descending else values
    ranks: Any = pc.rank(column, "descending" if descending else "ascending", tiebreaker="dense")
    return fixed(ranks).astype(np.int64, copy=False)


def order_by(keys: Sequence[Ints]) -> Ints:
    """The row numbers sorted by the first key, then by the second, and so on."""
    order = stable_order(keys[-1])
    for key in reversed(keys[:-1]):
        order = order[stable_order(key[order])]
    return order
