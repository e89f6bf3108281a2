"""Which rows are in a sample depends on their values and the seed alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from clonos_py.columns.keys import key_groups
from clonos_py.columns.sampling import sampled

MANY = pa.array(range(20_000), pa.int64())
VALUES = st.lists(st.one_of(st.none(), st.integers(-5, 5)), max_size=20)


def chosen(fraction: float, seed: int = 0, column: Any = MANY) -> set[int]:
    return set(np.flatnonzero(sampled([column], fraction, seed)).tolist())


@given(VALUES, st.integers(0, 20), st.floats(0, 1), st.integers(-(1 << 63), (1 << 63) - 1))
def test_equal_rows_are_chosen_alike_however_they_are_cut(values: list[Any], cut: int, part: float, seed: int) -> None:
    column: Any = pa.array(values, pa.int64())
    whole = sampled([column], part, seed).tolist()
    assert whole == [*sampled([column[:cut]], part, seed).tolist(), *sampled([column[cut:]], part, seed).tolist()]
    assert len({(value, found) for value, found in zip(values, whole, strict=True)}) == len(set(values))


@given(st.integers(0, 1 << 62), st.tuples(st.floats(0, 1), st.floats(0, 1)))
def test_a_greater_part_has_all_rows_of_a_smaller_one(seed: int, parts: tuple[float, float]) -> None:
    assert chosen(min(parts), seed) <= chosen(max(parts), seed)


@given(st.integers(0, 1 << 62), st.sampled_from([0.01, 0.1, 0.5, 0.9]))
def test_the_part_is_about_as_great_as_asked(seed: int, part: float) -> None:
    """Within six standard deviations."""
    assert abs(len(chosen(part, seed)) - part * 20_000) < 6 * (20_000 * part * (1 - part)) ** 0.5
    assert not chosen(0.0, seed)
    assert len(chosen(1.0, seed)) == 20_000


def test_seeds_and_key_groups_are_independent_of_it() -> None:
    one, other = chosen(0.5, 1), chosen(0.5, 2)
    assert abs(len(one & other) - 5_000) < 400
    groups = key_groups(pa.record_batch({"key": MANY}), ["key"], 4)
    assert all(abs(int((groups[sorted(one)] == group).sum()) - 2_500) < 300 for group in range(4))


def test_all_columns_decide() -> None:
    fixed: Any = pa.array([1] * 20_000, pa.int64())
    assert 0 < int(sampled([fixed, MANY], 0.5, 0).sum()) < 20_000
