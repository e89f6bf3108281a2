"""The watermark that each row finds, compared with a loop over the rows."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos_py.columns.row_watermarks import RowsBehind, with_watermarks, without_watermarks
from clonos_py.columns.times import MOMENT
from clonos_py.model.times import MAX_TIME, MIN_TIME

FAR = st.sampled_from([MIN_TIME, MIN_TIME + 1, -1, 0, MAX_TIME])
TIMES = st.lists(st.none() | st.integers(0, 40) | FAR, max_size=30)
NEARLY_SORTED = st.lists(st.integers(0, 300), max_size=300).map(
    lambda times: [time + (7 * n) % 11 for n, time in enumerate(sorted(times))]
)


def by_hand(times: list[int | None], out_of_order: int) -> list[int | None]:
    found: list[int | None] = []
    highest = MIN_TIME
    for time in times:
        watermark = max(highest - out_of_order, MIN_TIME)
        found.append(watermark if time is not None and time < watermark else None)
        highest = max(highest, MIN_TIME if time is None else time)
    return found


@given(TIMES | NEARLY_SORTED, st.sampled_from([0, 1, 5, 12, 2**62]), st.sets(st.integers(1, 300)))
def test_each_row_finds_the_same_watermark_wherever_reads_end(
    times: list[int | None], out_of_order: int, cuts: set[int]
) -> None:
    behind, reached = RowsBehind(out_of_order), MIN_TIME
    found: list[int | None] = []
    bounds = sorted({0, len(times), *(cut for cut in cuts if cut < len(times))})
    for start, stop in pairwise(bounds):
        column, extent = behind.find(pa.array(times, pa.int64()).slice(start, stop - start), reached)
        present = [time for time in times[start:stop] if time is not None]
        assert extent == ((min(present), max(present)) if present else None)
        reached = max([reached, *present])
        found += column.to_pylist()
    assert found == by_hand(times, out_of_order)


@pytest.mark.parametrize("type_", [MOMENT, pa.timestamp("ms"), pa.timestamp("ns", "UTC")])
def test_times_of_any_unit_are_compared_in_microseconds(type_: pa.DataType) -> None:
    times = pa.array([5_000, None, 3_000, 6_000], MOMENT).cast(type_)
    assert RowsBehind(1_000).find(times, 0).column.to_pylist() == [None, None, 4_000, None]


def test_the_column_is_replaced_and_removed() -> None:
    rows = pa.record_batch({"a": [1, 2]})
    first = with_watermarks(rows, pa.array([None, 7], pa.int64()))
    second = with_watermarks(first, pa.array([8, None], pa.int64()))
    left, column = without_watermarks(second)
    assert left == rows
    assert column is not None
    assert column.to_pylist() == [8, None]
    assert without_watermarks(rows) == (rows, None)
