"""Sketches of the values of each group: approximate quantiles and numbers of distinct values in little memory.

A sketch is a list of slots, each with a number. Two sketches are merged slot by slot, by the sum or the greater of the
two numbers, so that the result is the same in any order and however values are cut into batches. Slots follow from the
bits of values and from the hash of keys alone (``columns.keys``), so they are the same on every machine.

Quantiles: a slot is a range of floats with the same sign, exponent and first eight bits of the mantissa, and its number
is how many values lie there. The lower end of the range is within 0.4% of each of them, as in DDSketch (Masson, Rim,
Lee 2019), without a logarithm.

Distinct values: HyperLogLog (Flajolet et al. 2007) with 4,096 registers, of which only those in use are stored, and the
estimator of Ertl ("New cardinality estimation algorithms for HyperLogLog sketches", 2017, algorithm 6), which needs no
correction by tables. Its standard error is 1.6%.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from clonos_py.columns.distinct import unrolled
from clonos_py.columns.grouping import Groups
from clonos_py.columns.keys import hash_array
from clonos_py.columns.ordering import order_by
from clonos_py.columns.views import Column, Ints, fixed, plain, take, valid

_ENTRY = pa.struct({"slot": pa.int32(), "number": pa.int64()})  # type: ignore[arg-type]
SKETCH = pa.list_(_ENTRY)

_Floats = npt.NDArray[np.float64]
_DROPPED_BITS = 44
_REGISTER_BITS = 12
REGISTERS = 1 << _REGISTER_BITS
_HASH_BITS = 64 - _REGISTER_BITS
LEVELS = _HASH_BITS + 2
"""How many numbers a register may have: 0, if no value belongs to it, up to one more than bits are left."""
_LIMIT = 1 / (2 * np.log(2))


def value_counts(column: Column, groups: Groups) -> Any:
    """The quantile sketches of numbers. NaN is the greatest value."""
    column = plain(column)
    mask = valid(column)
    floats = fixed(column if column.type == pa.float64() else column.cast(pa.float64()))
    ids = groups.ids
    if mask is not None:
        floats, ids = floats[mask], ids[mask]
    floats = np.where(np.isnan(floats), np.nan, floats + 0.0)
    bits = floats.view(np.int64)
    slots = (bits & np.iinfo(np.int64).max) >> _DROPPED_BITS
    return _lists(np.add, np.where(bits < 0, ~slots, slots), np.ones(len(ids), np.int64), ids, groups.size)


def added_counts(sketches: Column, groups: Groups) -> Any:
    """Merges quantile sketches."""
    return _united(np.add, sketches, groups)


def quantiles(sketches: Any, share: float) -> Any:
    """By sketch: about the least value that at least this share of values does not exceed; null without values."""
    slots, numbers, rows = entries(sketches)
    before = np.cumsum(numbers)
    bounds = np.searchsorted(rows, np.arange(len(sketches) + 1))
    ends = np.concatenate([[0], before])[bounds]
    counts = np.diff(ends)
    found = np.minimum(before.searchsorted(ends[:-1] + rank(share, counts)), max(len(slots) - 1, 0))
    return pa.array(lower_ends(slots)[found] if len(slots) else np.zeros(len(counts)), mask=counts == 0)


def rank(share: float, counts: Ints) -> Ints:
    """Which of so many values, counted from 1 in their order, is the least that this share does not exceed."""
    found: Ints = np.maximum(np.ceil(share * counts), 1).astype(np.int64)
    return found


def registers(column: Column, groups: Groups) -> Any:
    """The sketches of distinct values, without nulls."""
    column = plain(column)
    mask = valid(column)
    rows = np.arange(len(column)) if mask is None else np.flatnonzero(mask)
    hashes = hash_array(column if mask is None else take(column, rows))
    slots = (hashes >> np.uint64(_HASH_BITS)).astype(np.int64)
    rest = (hashes & np.uint64((1 << _HASH_BITS) - 1)).astype(np.float64)  # exact: it has less than 53 bits
    numbers = _HASH_BITS + 1 - np.frexp(rest)[1].astype(np.int64)
    return _lists(np.maximum, slots, numbers, groups.ids[rows], groups.size)


def united_registers(sketches: Column, groups: Groups) -> Any:
    """Merges sketches of distinct values."""
    return _united(np.maximum, sketches, groups)


def distinct_counts(sketches: Any) -> Any:
    """By sketch: about how many distinct values there were."""
    _, numbers, rows = entries(sketches)
    used, of_used = np.unique(rows, return_inverse=True)
    levels = np.zeros((len(used), LEVELS), np.int64)
    np.add.at(levels, (of_used, numbers), 1)
    levels[:, 0] = REGISTERS - levels.sum(axis=1)
    found = np.zeros(len(sketches), np.int64)
    found[used] = estimates(levels)
    return pa.array(found)


def estimates(levels: Ints) -> Ints:
    """How many distinct values there were. ``levels``: by sketch, how many registers have the number 0, 1, 2, ..."""
    total = REGISTERS * _tau(1 - levels[:, -1] / REGISTERS)
    for level in range(_HASH_BITS, 0, -1):
        total = (total + levels[:, level]) / 2
    total += REGISTERS * _sigma(levels[:, 0] / REGISTERS)
    found: Ints = np.rint(_LIMIT * REGISTERS**2 / total).astype(np.int64)
    return found


def _sigma(x: _Floats) -> _Floats:
    """The sum of x and all x**(2**k) * 2**(k - 1), for x below 1."""
    power, weight, total = x, np.ones_like(x), x
    while True:
        power = power * power
        more = total + power * weight
        if (more == total).all():
            return total
        total, weight = more, weight + weight


def _tau(x: _Floats) -> _Floats:
    power, weight, total = x, np.ones_like(x), 1 - x
    while True:
        power, weight = np.sqrt(power), weight / 2
        less = total - (1 - power) ** 2 * weight
        if (less == total).all():
            return np.where(x > 0, total / 3, 0)
        total = less


def lower_ends(slots: Ints) -> _Floats:
    """The ends nearer to 0 of ranges of floats."""
    magnitudes = np.where(slots < 0, ~slots, slots) << _DROPPED_BITS
    found: _Floats = magnitudes.view(np.float64)
    return np.where(slots < 0, -found, found)


def _united(how: np.ufunc, sketches: Column, groups: Groups) -> Any:
    slots, numbers, rows = entries(sketches)
    return _lists(how, slots, numbers, groups.ids[rows], groups.size)


def entries(sketches: Any) -> tuple[Ints, Ints, Ints]:
    """The slots and numbers of all sketches, and for each the row of its sketch."""
    found, rows = unrolled(sketches)
    return fixed(found.field("slot")).astype(np.int64), fixed(found.field("number")), rows


def _lists(how: np.ufunc, slots: Ints, numbers: Ints, ids: Ints, size: int) -> Any:
    """One sketch for each group, with sorted slots."""
    order = order_by([ids, slots])
    ids, slots, numbers = ids[order], slots[order], numbers[order]
    begins = np.flatnonzero(np.append(True, (ids[1:] != ids[:-1]) | (slots[1:] != slots[:-1]))[: len(ids)])
    numbers = how.reduceat(numbers, begins) if len(begins) else numbers
    columns: list[Any] = [pa.array(slots[begins], pa.int32()), pa.array(numbers, pa.int64())]
    entries = pa.StructArray.from_arrays(columns, fields=list(_ENTRY))
    bounds = np.searchsorted(ids[begins], np.arange(size + 1))
    return pa.ListArray.from_arrays(pa.array(bounds, pa.int32()), entries)
