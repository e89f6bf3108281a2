"""A table of offsets finds the values it contains, and no others."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos_py.columns.offsets import Offsets, integers

EDGES = [-(2**63), -(2**63) + 1, -1, 0, 1, 2**63 - 2, 2**63 - 1]
NUMBERS = st.one_of(st.integers(-50, 50), st.sampled_from(EDGES))


@given(st.sampled_from([-(2**63), -7, 0, 2**63 - 40]), st.sets(st.integers(0, 39), min_size=1), st.lists(NUMBERS))
def test_rows_are_found_by_their_value(low: int, offsets: set[int], asked: list[int]) -> None:
    there = [low + offset for offset in sorted(offsets, key=lambda offset: offset * 7 % 40)]
    asked += [value for value in there if value % 3]
    table = Offsets.of(pa.array(there, pa.int64()))
    assert table is not None
    positions, numbers = table.probe(np.array(asked, np.int64))
    if positions is None:
        positions = np.arange(len(asked))
    assert list(zip(positions.tolist(), numbers.tolist(), strict=True)) == [
        (position, there.index(value)) for position, value in enumerate(asked) if value in there
    ]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, 1]),
        pa.array([1, None]),
        pa.array([], pa.int64()),
        pa.array([0, 10**6]),
        pa.array([-(2**63), 2**63 - 1]),
        pa.array(["a"]),
        pa.array([1.0]),
        pa.array([1], pa.uint64()),
    ],
)
def test_unsuitable_columns_have_no_table(column: pa.Array[pa.Scalar[pa.DataType]]) -> None:
    assert Offsets.of(column) is None


def test_integers_of_any_width_are_integers() -> None:
    found = integers(pa.array([1, 200], pa.uint8()))
    assert found is not None
    assert found.tolist() == [1, 200]
    assert found.dtype == np.int64
