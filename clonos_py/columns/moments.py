"""Number, mean and sum of squared deviations of the values of each group, for variances.

Partial results are merged by Chan's formula (Chan, Golub, LeVeque 1983), which does not subtract large sums from each
other: the variance of values that are far from 0 and close together keeps its digits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from clonos_py.columns.grouping import Groups
from clonos_py.columns.views import Column, Ints, fixed, plain, valid

MOMENTS = pa.struct({"count": pa.int64(), "mean": pa.float64(), "squares": pa.float64()})  # type: ignore[arg-type]

_Floats = npt.NDArray[np.float64]


def moments(column: Column, groups: Groups) -> Any:
    """The moments of numbers, without nulls, as structs."""
    column = plain(column)
    mask = valid(column)
    values = fixed(column.cast(pa.float64()) if not pa.types.is_floating(column.type) else column).astype(np.float64)
    ids = groups.ids
    if mask is not None:
        values, ids = values[mask], ids[mask]
    counts = np.bincount(ids, minlength=groups.size)
    means = _added(values, ids, groups.size) / np.maximum(counts, 1)
    return _structs(counts, means, _added((values - means[ids]) ** 2, ids, groups.size))


def merged_moments(parts: Any, groups: Groups) -> Any:
    """The moments of each group from those of its parts."""
    ids, (part_counts, part_means, part_squares) = groups.ids, _fields(parts)
    counts = np.bincount(ids, part_counts, groups.size).astype(np.int64)
    means = _added(part_counts * part_means, ids, groups.size) / np.maximum(counts, 1)
    apart = np.where(part_counts > 0, part_means - means[ids], 0)
    return _structs(counts, means, _added(part_squares + part_counts * apart**2, ids, groups.size))


def variances(parts: Any, less: int) -> Any:
    """The squared deviations over the number of values ``less`` so many; null if that leaves none. ``parts``: moments,
    or running ones."""
    counts, squares = fixed(parts.field("count")), fixed(parts.field("squares"))
    divisors = counts - less
    return pa.array(squares / np.maximum(divisors, 1), mask=divisors < 1)


def _added(values: _Floats, ids: Ints, size: int) -> _Floats:
    total = np.zeros(size)
    np.add.at(total, ids, values)
    return total


def _structs(counts: Ints, means: _Floats, squares: _Floats) -> Any:
    columns: list[Any] = [pa.array(counts, pa.int64()), pa.array(means), pa.array(squares)]
    return pa.StructArray.from_arrays(columns, fields=list(MOMENTS))


def _fields(parts: Any) -> tuple[Ints, _Floats, _Floats]:
    count, mean, squares = (fixed(parts.field(name)) for name in MOMENTS.names)
    return count, mean, squares
