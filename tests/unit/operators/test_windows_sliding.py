"""Hopping windows of many panes: merged in blocks where panes share keys, with the same results."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos_py.columns.grouping import group
from clonos_py.model.aggregates import Aggregate
from clonos_py.model.windows import Hopping
from clonos_py.operators import sliding
from clonos_py.operators.aggregation import ROWS_COLUMN, Partials
from clonos_py.operators.keyed_chunks import with_groups
from clonos_py.operators.panes import PANE_COLUMN, PaneClock, Panes
from clonos_py.operators.sliding import SlidingMerges

CLOCK = PaneClock(Hopping(12, 1))
PARTIALS = Partials(("k",), (Aggregate("count", None, "n", pa.int64()),))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 40), st.integers(0, 4)),
        st.tuples(st.just("fire"), st.integers(0, 40), st.just(0)),
    ),
    max_size=60,
)


def partial(pane: int, key: int) -> pa.RecordBatch:
    rows = pa.record_batch({"k": pa.array([key]), PANE_COLUMN: pa.array([pane]), ROWS_COLUMN: pa.array([1])})
    return with_groups(rows, ("k",), 128)


@given(STEPS, st.booleans())
def test_any_window_has_the_rows_of_its_panes_after_any_history(
    steps: list[tuple[str, int, int]], in_blocks: bool
) -> None:
    panes = Panes(PARTIALS)
    merges = SlidingMerges(panes, CLOCK)
    expected: dict[int, list[int]] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sliding, "_WORTHWHILE_SHARING", 0 if in_blocks else 4)
        for step, at, key in steps:
            rows = [k for pane in range(at, at + 12) for k in expected.get(pane, [])]
            if step == "add":
                panes.append(at, partial(at, key))
                merges.changed(at)
                expected.setdefault(at, []).append(key)
            elif rows:
                found = merges.merged(at)
                counts = dict(zip(found.column("k").to_pylist(), found.column(ROWS_COLUMN).to_pylist(), strict=True))
                assert counts == {k: rows.count(k) for k in rows}
                assert group([found.column("k")], found.num_rows).size == found.num_rows
