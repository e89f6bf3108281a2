"""Where the planner puts the assignment of event time."""

from __future__ import annotations

from typing import Any

import pytest

from clonos_py import GraphError, Job, Stream, col, count, tumbling
from clonos_py.model.plan import PhysicalPlan
from clonos_py.plan.physical import plan
from clonos_py.settings.resolution import resolve
from tests.unit.dsl.connectors import Bid, Nowhere, Rows
from tests.unit.plan.shapes import shape


def same(bid: Bid) -> Bid:
    return bid


def source(job: Job, name: str, **options: Any) -> Stream[Bid]:
    return job.source(Rows(Bid), **options).named(name)


def planned(stream: Stream[Any], job: Job, **settings: object) -> PhysicalPlan:
    windows = stream.key_by("auction").window(tumbling("10s")).aggregate(n=count()).named("windows")
    windows.sink(Nowhere("out")).named("out")
    return plan(job, resolve({"parallelism": 2, **settings}))


def test_the_assignment_runs_in_the_task_of_the_source() -> None:
    job = Job("test")
    made = planned(source(job, "bids").filter(col("price") > 1).with_event_time("at").named("timed"), job)
    assert shape(made)[0] == "bids x2: bids, filter, timed, windows.late, windows.combine"


def test_without_chaining_the_assignment_and_operators_before_it_stay_with_the_source() -> None:
    job = Job("test")
    made = planned(source(job, "bids").map(same).with_event_time("at").filter(col("price") > 1), job, chaining="off")
    assert [line for line in shape(made) if " x" in line][:2] == [
        "bids x2: bids, map, with_event_time, filter.columns",
        "filter x2: filter, windows.late, windows.combine",
    ]


def test_the_assignment_moves_before_unions_and_rebalances() -> None:
    job = Job("test")
    united = source(job, "first").union(source(job, "second")).rebalance().with_event_time("at").named("timed")
    lines = shape(planned(united, job))
    assert lines[0].startswith("first x2: first, timed.1")
    assert lines[1].startswith("second x2: second, timed.2")


def test_other_readers_of_a_union_get_the_rows_without_assignment() -> None:
    job = Job("test")
    united = source(job, "first").union(source(job, "second"))
    united.sink(Nowhere("all")).named("all")
    lines = shape(planned(united.with_event_time("at").named("timed"), job))
    assert lines[0].startswith("first x2: first, timed.1")
    assert any(line.startswith("first -> all") for line in lines)


def test_an_event_time_of_the_source_that_is_replaced_is_not_read() -> None:
    job = Job("test")
    stream = source(job, "bids", event_time="bidder").select("auction", "at").with_event_time("at", idle="3s")
    (vertex, *_) = planned(stream, job).vertices
    assert vertex.source is not None
    assert vertex.source.event_time.columns == (None,)
    assert vertex.source.event_time.idle_us == 3_000_000
    assert vertex.source.schemas[0].names == ["auction", "at"]


def test_the_shortest_idle_time_counts() -> None:
    job = Job("test")
    (vertex, *_) = planned(source(job, "bids", idle="2s").with_event_time("at", idle="3s"), job).vertices
    assert vertex.source is not None
    assert vertex.source.event_time.idle_us == 2_000_000


def test_an_assignment_in_other_tasks_than_the_source_is_refused() -> None:
    job = Job("test")
    stream = source(job, "bids").map(same).parallelism(3).with_event_time("at")
    with pytest.raises(GraphError, match="runs in other tasks than its source"):
        planned(stream, job)


def test_a_source_with_an_assignment_retains_its_frames() -> None:
    job = Job("test")
    made = planned(source(job, "bids").with_event_time("at"), job, spill="regenerate")
    assert not made.vertices[0].regenerates
    assert any("with_event_time" in note for note in made.notes)
