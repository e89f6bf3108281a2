"""Products of integers and a decimal, such as a price in another currency, computed with 64-bit arithmetic."""

from __future__ import annotations

import functools
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from clonos_py.columns.decimal_words import decimals_of
from clonos_py.columns.views import Column
from clonos_py.model.decimals import EXACT


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
