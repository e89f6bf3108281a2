"""The stable radix sort, and orders by several columns."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos_py.columns.ordering import order_by, places, stable_order


@pytest.mark.parametrize("limits", [(0, 3), (-40_000, 40_000), (-(2**40), 2**40), (-(2**63), 2**63 - 1)])
@pytest.mark.parametrize("rows", [0, 1, 500, 5_000])
def test_integers_of_any_range_are_ordered_stably(limits: tuple[int, int], rows: int) -> None:
    values = np.random.default_rng(rows).integers(*limits, rows)
    assert (stable_order(values) == np.argsort(values, kind="stable")).all()


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_unsigned_integers_are_ordered(low: int, high: int) -> None:
    values = np.tile(np.array([high, low], np.uint64), 1_000)
    assert (stable_order(values) == np.argsort(values, kind="stable")).all()


VALUES = st.lists(st.tuples(st.integers(-3, 3) | st.none(), st.sampled_from(["", "a", "b"]) | st.none()), max_size=20)


@given(VALUES, st.booleans(), st.booleans())
def test_rows_are_ordered_by_one_column_after_another_with_nulls_last(
    rows: list[tuple[int | None, str | None]], first_descending: bool, second_descending: bool
) -> None:
    columns: list[Any] = [
        pa.array([row[0] for row in rows], pa.int64()),
        pa.array([row[1] for row in rows], pa.string()),
    ]
    found = order_by([places(columns[0], first_descending), places(columns[1], second_descending)])
    order = list(range(len(rows)))
    for number, descending in ((1, second_descending), (0, first_descending)):
        order = in_order(order, [row[number] for row in rows], descending)
    assert found.tolist() == order


def in_order(rows: list[int], values: list[Any], descending: bool) -> list[int]:
    known = sorted((row for row in rows if values[row] is not None), key=values.__getitem__, reverse=descending)
    return known + [row for row in rows if values[row] is None]
