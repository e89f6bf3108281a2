"""The first rows of groups are the same natively as by sorting."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos_py.columns.first_in_groups import first_in_groups, reference_first_in_groups
from clonos_py.columns.grouping import group
from clonos_py.columns.views import Ints
from tests.unit.columns.native import needs_kernels

pytestmark = needs_kernels
EDGES = st.sampled_from([-(2**63), -1, 0, 1, 2**63 - 1])


@given(st.lists(st.tuples(st.integers(0, 4), EDGES, st.integers(0, 2)), max_size=40), st.integers(0, 2), st.data())
def test_the_first_rows_are_those_of_a_sort(rows: list[tuple[int, int, int]], keys: int, data: st.DataObject) -> None:
    columns: list[Ints] = [np.array([row[number] for row in rows], np.int64) for number in range(3)]
    groups = group([pa.array(columns[0])], len(rows))
    n = data.draw(st.integers(0, 40))
    found = first_in_groups(groups, columns[1 : 1 + keys], n)
    assert found.dtype == np.int64
    assert found.tolist() == reference_first_in_groups(groups, columns[1 : 1 + keys], n).tolist()


@pytest.mark.parametrize("n", [1, 10, 32, 33])
def test_many_rows_have_the_same_first_ones(n: int) -> None:
    random = np.random.default_rng(n)
    groups = group([random.integers(0, 40, 5_000)], 5_000)
    keys = [random.integers(-3, 3, 5_000), random.integers(0, 50, 10_000)[::2]]
    assert first_in_groups(groups, keys, n).tolist() == reference_first_in_groups(groups, keys, n).tolist()


@pytest.mark.parametrize("wrong", [-1, 2])
def test_a_group_that_is_not_there_is_refused(wrong: int) -> None:
    groups = group([np.array([5, 7])], 2)._replace(ids=np.array([0, wrong]))
    with pytest.raises(IndexError, match="not one of 2"):
        first_in_groups(groups, [np.zeros(2, np.int64)], 1)


def test_keys_of_fewer_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="3 contiguous values"):
        first_in_groups(group([np.arange(3)], 3), [np.zeros(2, np.int64)], 1)
