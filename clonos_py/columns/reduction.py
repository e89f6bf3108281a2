"""One value per group: counts, sums, minima and maxima.

Nulls do not count; a group without values has the result null. Sums never wrap: overflow is an error. Floats are added
in the order of the rows, so that a sum depends on nothing else. Minima and maxima ignore NaN unless all values are NaN.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from clonos_py.columns.decimal_words import decimals_of, short_values, words_of
from clonos_py.columns.grouping import Groups
from clonos_py.columns.ordering import inverse
from clonos_py.columns.views import Bools, Column, Ints, fixed, has_fixed_values, plain, valid
from clonos_py.model.errors import UserCodeError

_DIGITS = 38
"""The precision of the widest 128-bit decimal."""
WIDE = pa.decimal128(_DIGITS, 0)
_LOW_BITS = 32
_ROWS_FOR_EACH_TEXT = 8
"""Texts are compared by ranks if so many rows share one on average."""


def count_rows(groups: Groups) -> Ints:
    """The number of rows per group."""
    return np.bincount(groups.ids, minlength=groups.size)


def count_values(column: Column, groups: Groups) -> Ints:
    """The number of values per group that are not null."""
    mask = valid(plain(column))
    return count_rows(groups) if mask is None else np.bincount(groups.ids[mask], minlength=groups.size)


def sums(column: Column, groups: Groups) -> Any:
    """Sums: integers as int64, floats as float64, decimals with 38 digits. Raises UserCodeError if a sum needs more."""
    column = plain(column)
    if pa.types.is_decimal(column.type):
        return _decimal_sums(column, groups)
    if not has_fixed_values(column.type):
        return _by_arrow("sum", column, groups)
    if not pa.types.is_floating(column.type):
        return _integer_sums(column, groups)
    values, ids, empty = _present(fixed(column).astype(np.float64, copy=False), column, groups)
    return pa.array(_added(values, ids, groups.size), mask=empty)


def wide_sums(column: Column, groups: Groups) -> Any:
    """Sums of integers as decimals of scale 0, which hold every sum. Means are computed from them."""
    column = plain(column)
    values, ids, empty = _present(fixed(column), column, groups)
    if _stays_short(values):
        total = _added(values.astype(np.int64, copy=False), ids, groups.size)
        return decimals_of(total, WIDE, missing=empty)
    low, high = _long_sums(values, ids, groups.size)
    return decimals_of(low, WIDE, high, empty)


def least(column: Column, groups: Groups) -> Any:
    """The least value of each group, of the column's type."""
    return _extreme(column, groups, "min")


def greatest(column: Column, groups: Groups) -> Any:
    """The greatest value of each group, of the column's type."""
    return _extreme(column, groups, "max")


def _extreme(column: Column, groups: Groups, name: str) -> Any:
    column = plain(column)
    if pa.types.is_string(column.type):
        return _extreme_text(column, groups, name)
    if not has_fixed_values(column.type) or pa.types.is_decimal(column.type):
        return _by_arrow(name, column, groups)
    values = fixed(column)
    kernel: np.ufunc
    if pa.types.is_floating(column.type):
        kernel, start = np.fmin if name == "min" else np.fmax, np.nan
        values = values + values.dtype.type(0.0)
    else:
        limits = np.iinfo(values.dtype)
        kernel, start = (np.minimum, limits.max) if name == "min" else (np.maximum, limits.min)
    values, ids, empty = _present(values, column, groups)
    found = np.full(groups.size, start, values.dtype)
    kernel.at(found, ids, values)
    result: Any = pa.array(found, mask=empty)
    return result if result.type == column.type else result.view(column.type)


def _extreme_text(column: Any, groups: Groups, name: str) -> Any:
    """By the ranks of the distinct texts, where these are few: such as times of the day, of which a batch has some."""
    encoded = column.dictionary_encode()
    texts = encoded.dictionary
    if len(texts) * _ROWS_FOR_EACH_TEXT > len(column):
        return _by_arrow(name, column, groups)
    by_rank: Any = pc.array_sort_indices(texts)
    ranks = pa.array(inverse(fixed(by_rank).astype(np.int64)))
    found = _extreme(ranks.take(encoded.indices), groups, name)
    return texts.take(by_rank.take(found))


def _present(values: npt.NDArray[Any], column: Column, groups: Groups) -> tuple[npt.NDArray[Any], Ints, Bools | None]:
    """The values that are not null with their groups, and a mask of the groups without values."""
    mask = valid(column)
    if mask is None:
        return values, groups.ids, None
    ids = groups.ids[mask]
    return values[mask], ids, np.bincount(ids, minlength=groups.size) == 0


def _integer_sums(column: Any, groups: Groups) -> Any:
    values, ids, empty = _present(fixed(column), column, groups)
    if _stays_short(values):
        return pa.array(_added(values.astype(np.int64, copy=False), ids, groups.size), mask=empty)
    low, high = _long_sums(values, ids, groups.size)
    if (high != low >> 63).any():
        raise UserCodeError("a sum of integers needs more than 64 bits: cast the column to float before it is added")
    return pa.array(low, mask=empty)


def _added(values: npt.NDArray[Any], ids: Ints, size: int) -> npt.NDArray[Any]:
    total = np.zeros(size, values.dtype)
    np.add.at(total, ids, values)
    return total


def _stays_short(integers: npt.NDArray[Any]) -> bool:
    """Whether the sum of any subset of the integers fits into 64 bits."""
    if integers.dtype.itemsize <= 4 or not len(integers):
        return True  # no batch has enough rows to overflow
    greatest_bits = int(np.bitwise_or.reduce(integers))  # an upper bound of the greatest value, in half the time
    if greatest_bits < 0:
        greatest_bits = max(int(integers.max()), -int(integers.min()))
    return greatest_bits * len(integers) < 2**63


def _long_sums(integers: npt.NDArray[Any], ids: Ints, size: int) -> tuple[Ints, Ints]:
    """The low and the high 64 bits of each sum: adds the halves of the integers, then carries."""
    low = _added((integers & integers.dtype.type(2**_LOW_BITS - 1)).astype(np.int64), ids, size)
    high = _added((integers >> integers.dtype.type(_LOW_BITS)).astype(np.int64), ids, size)
    high += low >> _LOW_BITS
    return (high << _LOW_BITS) | (low & (2**_LOW_BITS - 1)), high >> _LOW_BITS


def _decimal_sums(column: Any, groups: Groups) -> Any:
    """Arrow's sum of 128-bit decimals wraps silently. Where it might, the sum is computed in 256 bits and checked."""
    scale = column.type.scale
    short = _short_values(column, groups)
    if short is not None:
        values, ids, empty = short
        total = _added(values, ids, groups.size)
        return decimals_of(total, pa.decimal128(_DIGITS, scale), missing=empty)
    if _are_small(column):
        return _by_arrow("sum", column, groups)
    exact = _by_arrow("sum", column.cast(pa.decimal256(2 * _DIGITS, scale)), groups)
    try:
        return exact.cast(pa.decimal128(_DIGITS, scale))
    except pa.ArrowInvalid as error:
        raise UserCodeError(
            f"a sum of decimals needs more than {_DIGITS} digits: cast the column to float before it is added"
        ) from error


def _short_values(column: Any, groups: Groups) -> tuple[Ints, Ints, Bools | None] | None:
    """The unscaled values that are not null, if all sums fit into 64 bits; numpy is four times as fast as Arrow."""
    if column.type.bit_width != 128:
        return None
    words, ids, empty = _present(words_of(column), column, groups)
    low = short_values(words)
    return None if low is None or not _stays_short(low) else (low, ids, empty)


def _are_small(column: Any) -> bool:
    """Whether the sum of any subset of these decimals fits into the precision."""
    if column.type.precision + len(str(len(column))) <= _DIGITS:
        return True
    extremes = [extreme.as_py() for extreme in (pc.min(column), pc.max(column))]
    digits: int = max((extreme.adjusted() + 1 for extreme in extremes if extreme is not None), default=0)
    return digits + int(column.type.scale) + len(str(len(column))) <= _DIGITS


def _by_arrow(function: str, column: Column, groups: Groups) -> Any:
    """Aggregates types that numpy does not have, such as decimals, text and booleans."""
    table: Any = pa.table({"group": groups.ids, "value": column})
    found = table.group_by("group", use_threads=False).aggregate([("value", function)]).combine_chunks()
    order = np.argsort(found.column("group").to_numpy(), kind="stable")
    return found.column(f"value_{function}").combine_chunks().take(pa.array(order))
