"""Splitting a batch: every row once, in order."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from clonos_py.columns.partition import split


@given(st.integers(1, 300).flatmap(lambda n: st.tuples(st.just(n), st.lists(st.integers(0, n - 1), max_size=50))))
def test_every_row_reaches_its_target_in_order(case: tuple[int, list[int]]) -> None:
    n, targets = case
    rows = range(len(targets))
    batch = pa.record_batch({"row": pa.array(rows, pa.int64()), "text": pa.array([f"row {i}" for i in rows])})
    parts = split(batch, np.array(targets, np.int32), n)
    assert len(parts) == n
    for target, part in enumerate(parts):
        expected = [row for row, t in enumerate(targets) if t == target]
        assert (part.column("row").to_pylist() if part else []) == expected
        assert (part.column("text").to_pylist() if part else []) == [f"row {i}" for i in expected]
        assert part is None or part.num_rows > 0


def test_a_batch_for_one_target_is_passed_on_without_a_copy() -> None:
    batch = pa.record_batch({"a": [1, 2, 3]})
    assert split(batch, np.array([1, 1, 1], np.int32), 2) == [None, batch]
    assert split(batch, np.array([1, 1, 1], np.int32), 2)[1] is batch
