"""Means from sums and counts: floats, or integers on request, for numbers; decimals of equal scale for decimals.

Sums of integers are decimals with scale 0 here (``columns.reduction.wide_sums``), which do not overflow.
"""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from clonos_py.columns.decimal_words import decimals_of, short_values, words_of
from clonos_py.columns.views import Ints, fixed
from clonos_py.model.decimals import EXACT


def means(total: Any, counts: Any) -> Any:
    """The quotient of each row; null where nothing was counted. Decimals are rounded half away from zero."""
    counted: Ints = fixed(counts)
    if not pa.types.is_decimal(total.type):
        return pa.array(fixed(total) / np.maximum(counted, 1), mask=counted == 0)
    short = short_values(words_of(total))
    if total.null_count == 0 and short is not None and _are_far_from_limits(short):
        return _divide_short(short, counted, total.type)
    return _divide_exactly(total, counted)


def means_of_integers(total: Any, counts: Any) -> Any:
    """The quotients as floats; null where nothing was counted."""
    counted: Ints = fixed(counts)
    short = short_values(words_of(total))
    if short is not None:
        return pa.array(short / np.maximum(counted, 1), mask=counted == 0)
    return _divide_long(total, counted, pa.float64())


def whole_means(total: Any, counts: Any) -> Any:
    """The quotients of integers, rounded towards zero; null where nothing was counted."""
    counted: Ints = fixed(counts)
    sums = short_values(words_of(total))
    if sums is None:
        return _divide_long(total, counted, pa.int64())
    divisors = np.maximum(counted, 1)
    quotients = sums // divisors
    quotients += (sums < 0) & (quotients * divisors != sums)
    return pa.array(quotients, mask=counted == 0)


def _divide_long(total: Any, counted: Ints, kind: pa.DataType) -> Any:
    """Divides sums of integers that need more than 64 bits, in Python."""
    quotients: list[int | float | None] = []
    for value, count in zip(total.to_pylist(), counted.tolist(), strict=True):
        if value is None or not count:
            quotients.append(None)
        elif pa.types.is_floating(kind):
            quotients.append(int(value) / count)
        else:
            quotients.append(abs(int(value)) // count * (1 if value > 0 else -1))
    return pa.array(quotients, kind)


def _are_far_from_limits(unscaled: Ints) -> bool:
    """Whether twice the values plus a count fit into 64 bits."""
    return bool(((unscaled > -(2**61)) & (unscaled < 2**61)).all())


def _divide_short(unscaled: Ints, counted: Ints, kind: pa.DataType) -> Any:
    """Divides unscaled values that fit into 61 bits."""
    magnitudes = (2 * np.abs(unscaled) + counted) // (2 * counted)
    return decimals_of(np.where(unscaled < 0, -magnitudes, magnitudes), kind)


def _divide_exactly(total: Any, counted: Ints) -> Any:
    unit = Decimal(1).scaleb(-total.type.scale)
    quotients = [
        None if value is None else EXACT.divide(value, Decimal(count)).quantize(unit, ROUND_HALF_UP, EXACT)
        for value, count in zip(total.to_pylist(), counted.tolist(), strict=True)
    ]
    return pa.array(quotients, total.type)
