"""Stable sorting of integers: the order of equal values is that of their rows, so it is the same on every machine."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from clonos_py.columns.views import Ints

_DIGIT_BITS = 16
_FEW_ROWS = 1_024


def stable_order(values: npt.NDArray[Any]) -> Ints:
    """The row numbers in the order of their values, equal ones in the order of their rows.

    A radix sort over 16-bit digits of the offset to the least value: numpy sorts one digit in linear time, and ids and
    times of one batch seldom need more than two.
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
