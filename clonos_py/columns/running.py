"""For each row the result of its group so far: sums and moments, added in the order of the rows.

Rows of one group lie together, in their order, and ``ids`` has the group of each. Floats are added one by one, so
results are the same however rows are cut into batches, if the last result of a group stands before its further rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from clonos_py.columns.views import Bools, Column, Ints, fixed

RUNNING_MOMENTS = pa.struct(
    {"count": pa.int64(), "first": pa.float64(), "sum": pa.float64(), "squares": pa.float64()}  # type: ignore[arg-type]
)
"""The number of values of a group, its first value, and of their distances from that one the sum and the sum of squared
deviations. Distances keep the digits of values that are far from 0 and close together."""

_Floats = npt.NDArray[np.float64]


def last_so_far(chosen: Ints, ids: Ints) -> tuple[Ints, Bools]:
    """For each row the place in ``chosen``, sorted row numbers, of the last one up to this row, and whether that one is
    a row of the same group."""
    found = np.searchsorted(chosen, np.arange(len(ids)), side="right") - 1
    if not len(chosen):
        return found, np.zeros(len(ids), bool)
    return found, (found >= 0) & (ids[chosen[found]] == ids)


def running_sums(values: Column, ids: Ints) -> Any:
    """The sum of each value and all earlier ones of its group, added in the order of rows. Null before the first."""
    import polars as pl

    columns = pl.DataFrame({"values": pl.from_arrow(values), "ids": ids})
    sums = columns.select(pl.col("values").cum_sum().forward_fill().over("ids")).to_series()
    return sums.to_arrow()


def started_moments(parts: Any) -> Any:
    """The running moments of one value each, or of none, from their moments (``columns.moments``)."""
    counts, values = fixed(parts.field("count")), fixed(parts.field("mean"))
    with np.errstate(invalid="ignore"):
        nothing = values - values  # NaN for NaN and infinite values
    return _structs(counts, values, np.zeros(len(counts)), nothing)


def running_moments(parts: Any, ids: Ints) -> Any:
    """The running moments of each row and all earlier ones of its group. The first part of a group may stand for many
    rows, all others for one value or none.

    By Welford's recurrence (Welford 1962) over the distances, with means that are computed from running sums.
    """
    counted = np.flatnonzero(fixed(parts.field("count")))
    if not len(counted):
        return parts
    found = _welford([fixed(parts.field(name))[counted] for name in RUNNING_MOMENTS.names], ids[counted])
    place, known = last_so_far(counted, ids)
    return _structs(*(np.where(known, column[place], 0) for column in found))


def _welford(parts: Sequence[npt.NDArray[Any]], ids: Ints) -> list[npt.NDArray[Any]]:
    """``parts``: the columns of ``RUNNING_MOMENTS`` of parts that have values."""
    counts, values, sums, squares = parts
    begins = np.append(True, ids[1:] != ids[:-1])
    rows = np.arange(len(ids))
    first = np.maximum.accumulate(np.where(begins, rows, 0))
    numbers = counts[first] + rows - first
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.where(begins, sums, values - values[first])
        sums = _sums(apart, ids)
        means = sums / numbers
        steps = (apart - np.append(0.0, means[:-1])) * (apart - means)
        squares = _sums(np.where(begins, squares, np.maximum(steps, 0)), ids)
    return [numbers, values[first], sums, squares]


def _sums(values: _Floats, ids: Ints) -> _Floats:
    return fixed(running_sums(pa.array(values), ids))


def _structs(counts: Ints, first: _Floats, sums: _Floats, squares: _Floats) -> Any:
    columns: list[Any] = [pa.array(column) for column in (counts, first, sums, squares)]
    return pa.StructArray.from_arrays(columns, fields=list(RUNNING_MOMENTS))
