"""One value per group: counts, sums, least and greatest values.

Nulls do not count; a group without a value has the result null. Integer sums wrap at 64 bits, decimal ones never do.
Floats are added in the order of the rows, so that a sum depends on nothing else; of floats NaN is ignored by the
extremes unless all are NaN.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from clonos_py.columns.grouping import Groups
from clonos_py.columns.views import Bools, Column, Ints, fixed, has_fixed_values, plain, valid
from clonos_py.model.errors import UserCodeError

_DIGITS = 38
"""Of the widest decimal of 128 bits."""


def count_rows(groups: Groups) -> Ints:
    """Rows per group."""
    return np.bincount(groups.ids, minlength=groups.size)


def count_values(column: Column, groups: Groups) -> Ints:
    """Rows per group that are not null."""
    mask = valid(plain(column))
    return count_rows(groups) if mask is None else np.bincount(groups.ids[mask], minlength=groups.size)


def sums(column: Column, groups: Groups) -> Any:
    """Integers as int64, floats as float64, decimals with 38 digits. Raises UserCodeError for a decimal sum that needs
    more."""
    column = plain(column)
    if pa.types.is_decimal(column.type):
        return _decimal_sums(column, groups)
    if not has_fixed_values(column.type):
        return _by_arrow("sum", column, groups)
    dtype = np.float64 if pa.types.is_floating(column.type) else np.int64
    values, ids, empty = _present(fixed(column).astype(dtype, copy=False), column, groups)
    total = np.zeros(groups.size, dtype)
    np.add.at(total, ids, values)
    return pa.array(total, mask=empty)


def least(column: Column, groups: Groups) -> Any:
    """The least value of each group, of the column's type."""
    return _extreme(column, groups, "min")


def greatest(column: Column, groups: Groups) -> Any:
    """The greatest value of each group, of the column's type."""
    return _extreme(column, groups, "max")


def _extreme(column: Column, groups: Groups, name: str) -> Any:
    column = plain(column)
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


def _present(values: npt.NDArray[Any], column: Column, groups: Groups) -> tuple[npt.NDArray[Any], Ints, Bools | None]:
    """The values that are not null with their groups, and which groups have none."""
    mask = valid(column)
    if mask is None:
        return values, groups.ids, None
    ids = groups.ids[mask]
    return values[mask], ids, np.bincount(ids, minlength=groups.size) == 0


def _decimal_sums(column: Any, groups: Groups) -> Any:
    """Arrow adds 128-bit words, whatever they overflow: where they might, 256 bits add up to what can be checked."""
    if _are_small(column):
        return _by_arrow("sum", column, groups)
    scale = column.type.scale
    exact = _by_arrow("sum", column.cast(pa.decimal256(2 * _DIGITS, scale)), groups)
    try:
        return exact.cast(pa.decimal128(_DIGITS, scale))
    except pa.ArrowInvalid as error:
        raise UserCodeError(
            f"a sum of decimals needs more than {_DIGITS} digits: cast the column to float before it is added"
        ) from error


def _are_small(column: Any) -> bool:
    """Whether the sum of any of these decimals has fewer digits than there may be."""
    if column.type.precision + len(str(len(column))) <= _DIGITS:
        return True
    extremes = [extreme.as_py() for extreme in (pc.min(column), pc.max(column))]
    digits: int = max((extreme.adjusted() + 1 for extreme in extremes if extreme is not None), default=0)
    return digits + int(column.type.scale) + len(str(len(column))) <= _DIGITS


def _by_arrow(function: str, column: Column, groups: Groups) -> Any:
    """Types that numpy does not have: decimals, text, booleans."""
    table: Any = pa.table({"group": groups.ids, "value": column})
    found = table.group_by("group", use_threads=False).aggregate([("value", function)]).combine_chunks()
    order = np.argsort(found.column("group").to_numpy(), kind="stable")
    return found.column(f"value_{function}").combine_chunks().take(pa.array(order))
