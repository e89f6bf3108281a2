"""Functions of numbers. Roots, powers and logarithms are floats, and follow IEEE 754: of what has none they are NaN."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from clonos_py.columns.decimals import as_floats

Values = Any
"""A pyarrow Array or Scalar."""


def square_root(numbers: Values) -> Values:
    return pc.sqrt(_floats(numbers))


def exponential(numbers: Values) -> Values:
    return pc.exp(_floats(numbers))


def logarithm(numbers: Values, base: float | None) -> Values:
    """The logarithm; ``base``: None is the natural one. Those to base 2 and 10 are exact for powers of these."""
    floats = _floats(numbers)
    if base is None:
        return pc.ln(floats)
    if base in (2, 10):
        return pc.log2(floats) if base == 2 else pc.log10(floats)
    return pc.divide(pc.ln(floats), pa.scalar(math.log(base), floats.type))


def rounded_down(numbers: Values) -> Values:
    return numbers if pa.types.is_integer(numbers.type) else pc.floor(numbers)


def rounded_up(numbers: Values) -> Values:
    return numbers if pa.types.is_integer(numbers.type) else pc.ceil(numbers)


def sign(numbers: Values) -> Values:
    """-1, 0 or 1, as int64; of floats as floats, NaN for NaN."""
    found = pc.sign(numbers)
    return found if pa.types.is_floating(numbers.type) else found.cast(pa.int64())


def power(base: Values, exponent: Values) -> Values:
    """Of integers an integer, and an error if that is too large or the exponent negative; else a float."""
    if pa.types.is_integer(base.type) and pa.types.is_integer(exponent.type):
        return pc.power_checked(base.cast(pa.int64()), exponent.cast(pa.int64()))
    return pc.power(_floats(base), _floats(exponent))


def extreme(function: str, *values: Values) -> Values:
    """The least or the greatest of the values of each row that are not null; NaN counts only if there is no other."""
    return pc.call_function(function, list(values), pc.ElementWiseAggregateOptions(skip_nulls=True))


def _floats(numbers: Values) -> Values:
    if pa.types.is_floating(numbers.type):
        return numbers
    if pa.types.is_decimal(numbers.type):
        return as_floats(numbers, pa.float64())
    if not pa.types.is_integer(numbers.type):
        raise pa.ArrowNotImplementedError("it takes numbers")
    return numbers.cast(pa.float64(), safe=False)
