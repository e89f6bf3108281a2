"""Decimals and other numbers: products of integers and a decimal, such as a price in another currency, computed with
64-bit arithmetic; and decimals as floats."""

from __future__ import annotations

import functools
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from clonos_py.columns.decimal_words import decimals_of, short_values, words_of
from clonos_py.columns.views import Column, valid
from clonos_py.model.decimals import EXACT

_EXACT_MAX = 2**53
"""Up to here every integer is a float."""
_POWER_MAX = 22
"""10 to this power is a float, too. So the quotient of two such floats is the nearest one."""


def integers_times(integers: Column, factor: Any) -> Column | None:
    """The result of Arrow's multiplication of integers without nulls and a ``Decimal128Scalar``. None if a product or
    the factor needs more than 64 bits."""
    kind = factor.type
    unscaled = int(factor.as_py().scaleb(kind.scale, EXACT))
    try:
        products = pc.multiply_checked(integers.cast(pa.int64()), pa.scalar(unscaled, pa.int64()))
    except (pa.ArrowInvalid, OverflowError):
        return None
    made: Column = decimals_of(products.to_numpy(), _product_type(integers.type, kind))
    return made


@functools.cache
def _product_type(integers: pa.DataType, factor: pa.DataType) -> pa.DataType:
    return pc.multiply(pa.array([], integers), pa.array([], factor)).type


def as_floats(decimals: Any, target: pa.DataType) -> Any:
    """Each decimal, of an array or a scalar, as the nearest float, as in Python. Arrow's cast may give a neighbour:
    2.55 becomes 2.5500000000000003."""
    kind = decimals.type
    if isinstance(decimals, pa.Array) and target == pa.float64() and isinstance(kind, pa.Decimal128Type):
        short = short_values(words_of(decimals)) if 0 <= kind.scale <= _POWER_MAX else None
        if short is not None and (abs(short) <= _EXACT_MAX).all():
            known = valid(decimals)
            return pa.array(short / 10.0**kind.scale, mask=None if known is None else ~known)
    return decimals.cast(pa.string()).cast(target)
