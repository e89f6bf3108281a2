"""Rows come out in the order of time, each once, after any requests; rows that are not due stay."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from clonos_py.model.times import MAX_TIME
from clonos_py.operators.event_time_buffer import EventTimeBuffer


def rows_of(times: list[int], first: int = 0) -> pa.RecordBatch:
    return pa.record_batch({"t": pa.array(times, pa.int64()), "n": range(first, first + len(times))})


STEPS = st.lists(
    st.tuples(st.sampled_from(["add", "take", "snapshot", "restore"]), st.lists(st.integers(0, 20), max_size=6)),
    max_size=12,
)


@given(STEPS)
def test_rows_come_by_time_and_then_by_arrival(steps: list[tuple[str, list[int]]]) -> None:
    buffer, waiting, count = EventTimeBuffer("t", ["n"], 8), [], 0
    for step, times in [*steps, ("end", [])]:
        if step == "add":
            buffer.add(rows_of(times, count))
            waiting += [(time, count + place) for place, time in enumerate(times)]
            count += len(times)
        elif step == "snapshot":
            buffer.chunks()
        elif step == "restore":
            chunks = buffer.chunks()
            buffer.add(rows_of(times, count))
            buffer.load(chunks)
        else:
            watermark = MAX_TIME if step == "end" else max(times, default=0)
            due = sorted(row for row in waiting if row[0] < watermark)
            waiting = [row for row in waiting if row[0] >= watermark]
            taken = buffer.take(watermark)
            assert (taken is None) == (not due)
            if taken is not None:
                assert [(row["t"], row["n"]) for row in taken.to_pylist()] == due


def test_rows_that_are_not_due_keep_their_place_and_their_chunk() -> None:
    buffer = EventTimeBuffer("t", ["n"], 8)
    buffer.add(rows_of([1, 9, 5, 7]))
    (before,) = buffer.chunks()
    assert buffer.take(1) is None
    assert buffer.chunks()[0] is before
    taken = buffer.take(2)
    assert taken is not None
    assert taken["t"].to_pylist() == [1]
    (rest,), start = buffer.chunks(), address(buffer)
    assert buffer.take(5) is None
    assert buffer.chunks()[0] is rest
    assert buffer.take(6) is not None
    assert address(buffer) == start, "sorted rows are cut, not copied"
    assert buffer.take(8) is not None
    assert address(buffer) != start, "the last row holds all others in memory"
    assert [chunk.rows["t"].to_pylist() for chunk in buffer.chunks()] == [[9]]


def address(buffer: EventTimeBuffer) -> int:
    (chunk,) = buffer.chunks()
    data: Any = chunk.rows["t"].buffers()[1]
    return int(data.address)
