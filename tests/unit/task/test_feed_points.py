"""When feed points are due, and what sinks are given again."""

from __future__ import annotations

import pyarrow as pa

from clonos_py.model.state import Chunk, OperatorState
from clonos_py.task.feed_points import FeedPoints
from clonos_py.task.sink_rows import SinkRows


def rows(*numbers: int) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(numbers, pa.int64())})


def numbers(given: SinkRows) -> list[tuple[int, list[int]]]:
    return [(side, batch.column(0).to_pylist()) for side, batch in given.rows]  # type: ignore[misc]


def test_a_point_is_due_when_it_is_requested_the_interval_has_passed_and_the_task_has_worked() -> None:
    points = FeedPoints(100)
    assert not points.due(1_000, 5), "no standby has asked"
    points.request()
    assert points.due(1_000, 5)
    points.taken(1_000, 6)
    assert points.wake_us(7) is None, "the standby has not loaded it"
    points.request()
    assert not points.due(1_099, 7)
    assert points.wake_us(7) == 1_100
    assert points.due(1_100, 7)
    assert not points.due(1_100, 6), "nothing has happened since"
    assert points.wake_us(6) is None


def test_standbys_are_behind_by_the_age_of_the_point_that_they_had() -> None:
    points = FeedPoints(100)
    points.request()
    points.taken(1_000, 1)
    assert points.lag_us(1_010) is None, "they have not loaded it"
    points.request()
    assert points.lag_us(1_020) is None, "before the first point they had a checkpoint"
    points.taken(1_100, 2)
    points.request()
    assert points.lag_us(1_130) == 130
    assert points.lag_us(1_140) is None, "it is reported once"


def test_a_sink_is_given_the_rows_since_the_last_barrier_in_their_order() -> None:
    given = SinkRows()
    given.add(0, rows(1))
    given.barrier(OperatorState(values={"checkpoint": 3}))
    for side, number in ((0, 2), (0, 3), (1, 4), (0, 5)):
        given.add(side, rows(number))
    stored = given.state
    assert stored.values == {"checkpoint": 3}

    another = SinkRows()
    (at_barrier,) = another.restore([stored])
    assert (at_barrier.tables, at_barrier.values) == ({}, {"checkpoint": 3})
    assert numbers(another) == [(0, [2, 3]), (1, [4]), (0, [5])]
    another.add(0, rows(6))
    assert numbers(another) == [(0, [2, 3]), (1, [4]), (0, [5]), (0, [6])]
    assert another.state.values == {"checkpoint": 3}, "a point after the restart has them all"


def test_a_sink_restores_nothing_from_a_point_before_the_first_barrier() -> None:
    """It is given all rows so far, and has no state that it could restore."""
    given = SinkRows()
    given.add(0, rows(1))
    another = SinkRows()
    assert another.restore([given.state]) == []
    assert numbers(another) == [(0, [1])]


def test_rows_that_a_standby_has_are_the_same_chunks_in_the_next_point() -> None:
    given = SinkRows()
    given.add(0, rows(1))
    first = given.state
    for number in range(2, 50):
        given.add(0, rows(number))
        later = given.state
    ((name, chunks),) = later.tables.items()
    assert chunks[0] is first.tables[name][0]
    assert len(chunks) == 49, "one table, however many points there were: tables are named in each of them"


def test_tables_of_the_sink_are_kept_apart() -> None:
    given, own = SinkRows(), Chunk(rows(7))
    given.barrier(OperatorState({"0.3": [own]}))
    given.add(0, rows(1))
    (at_barrier,) = SinkRows().restore([given.state])
    assert at_barrier.tables == {"0.3": [own]}
