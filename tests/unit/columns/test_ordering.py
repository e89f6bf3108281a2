"""The stable radix sort."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos_py.columns.ordering import stable_order


@pytest.mark.parametrize("limits", [(0, 3), (-40_000, 40_000), (-(2**40), 2**40), (-(2**63), 2**63 - 1)])
@pytest.mark.parametrize("rows", [0, 1, 500, 5_000])
def test_integers_of_any_range_are_ordered_stably(limits: tuple[int, int], rows: int) -> None:
    values = np.random.default_rng(rows).integers(*limits, rows)
    assert (stable_order(values) == np.argsort(values, kind="stable")).all()


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_unsigned_integers_are_ordered(low: int, high: int) -> None:
    values = np.tile(np.array([high, low], np.uint64), 1_000)
    assert (stable_order(values) == np.argsort(values, kind="stable")).all()
