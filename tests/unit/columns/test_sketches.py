"""Sketches and moments: near the exact result, and the same however values are cut into parts and in any order."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos_py.columns import sketches
from clonos_py.columns.grouping import Groups, group
from clonos_py.columns.moments import MOMENTS, merged_moments, moments, variances

FLOATS = st.floats(allow_nan=False) | st.sampled_from([0.0, -0.0, math.inf, -math.inf, 5e-324, 1.0, 255.0, -3.0])
Kernel = Callable[[Any, Groups], Any]


def of_one(values: Any) -> Groups:
    return Groups(np.zeros(len(values), np.int64), 1, np.zeros(1, np.int64))


def in_parts(start: Kernel, merge: Kernel, values: Sequence[Any], kind: pa.DataType, cuts: Sequence[int]) -> Any:
    bounds = sorted({0, len(values), *(cut % (len(values) + 1) for cut in cuts)})
    parts = [pa.array(values[low:high], kind) for low, high in itertools.pairwise([0, *bounds])]
    whole = pa.concat_arrays([start(part, of_one(part)) for part in parts])
    return merge(whole, of_one(whole))


@given(st.lists(st.none() | FLOATS, max_size=60), st.lists(st.integers(0, 60)), st.floats(0, 1), st.randoms())
def test_a_quantile_is_near_the_exact_one_whatever_the_order(
    values: list[float | None], cuts: list[int], share: float, random: Any
) -> None:
    whole = pa.array(values, pa.float64())
    sketch = sketches.value_counts(whole, of_one(values))
    random.shuffle(values)
    assert in_parts(sketches.value_counts, sketches.added_counts, values, pa.float64(), cuts).equals(sketch)
    found = sketches.quantiles(sketch, share).to_pylist()[0]
    numbers = sorted(value for value in values if value is not None)
    if not numbers:
        assert found is None
        return
    exact = numbers[max(math.ceil(share * len(numbers)), 1) - 1]
    assert found == exact or 0 <= abs(exact) - abs(found) <= max(abs(exact) / 256, 1e-300)


@pytest.mark.parametrize("count", [0, 1, 10, 1_000, 12_000, 300_000])
def test_distinct_values_are_counted_to_a_few_percent(count: int) -> None:
    numbers = np.arange(count)
    for values in (numbers * 3, numbers / 7, [f"user {number}" for number in range(count)]):
        column: Any = pa.array(values, pa.string() if isinstance(values, list) else None)
        twice = pa.concat_arrays([column, column])
        found = sketches.distinct_counts(sketches.registers(twice, of_one(twice))).to_pylist()[0]
        assert abs(found - count) <= (0.05 * count if count > 10 else 0)


@given(st.lists(st.none() | st.text("abc", max_size=4), max_size=60), st.lists(st.integers(0, 60)), st.randoms())
def test_sketches_of_distinct_values_are_the_same_in_any_order(
    values: list[str | None], cuts: list[int], random: Any
) -> None:
    sketch = sketches.registers(pa.array(values, pa.string()), of_one(values))
    random.shuffle(values)
    assert in_parts(sketches.registers, sketches.united_registers, values, pa.string(), cuts).equals(sketch)
    few = {value for value in values if value is not None}
    shared = 1  # two values may have the same register, as "cbbc" and "ccba" have
    assert abs(sketches.distinct_counts(sketch).to_pylist()[0] - len(few)) <= len(few) / 20 + shared


@given(
    st.lists(st.tuples(st.integers(0, 2), st.none() | st.integers(-9, 9)), max_size=40),
    st.integers(0, 40),
    st.integers(0, 1),
)
def test_variances_are_those_of_all_values(rows: list[tuple[int, int | None]], cut: int, less: int) -> None:
    far = 10**9  # sums of squares would lose all digits
    parts = []
    cut %= len(rows) + 1
    for part in (rows[:cut], rows[cut:], [(key, None) for key in range(3)]):
        keys = pa.array([key for key, _ in part], pa.int64())
        values = pa.array([None if value is None else far + value for _, value in part], pa.int64())
        groups = group([keys], len(part))
        parts.append((keys.take(groups.first), moments(values, groups)))
    found = pa.concat_arrays([part for _, part in parts])
    assert found.type == MOMENTS
    keys = pa.concat_arrays([keys for keys, _ in parts])
    groups = group([keys], len(keys))
    merged = dict(zip(keys.take(groups.first).to_pylist(), variances(merged_moments(found, groups), less), strict=True))
    for key, variance in merged.items():
        own = [value for of, value in rows if of == key and value is not None]
        if len(own) <= less:
            assert variance.as_py() is None
        else:
            exact = (statistics.pvariance if less == 0 else statistics.variance)(own)
            assert variance.as_py() == pytest.approx(exact, abs=1e-6)
