"""Jobs that explode lists: what is behind sees each element as a row, whatever dies."""

from __future__ import annotations

from typing import Any

import pytest

from clonos_py import Job, Record, Stream, col, count, testing, tumbling
from clonos_py.connectors import MemorySink, MemorySource
from clonos_py.model.errors import GraphError
from tests.jobs.rows import EVENTS, IN_FOURS, Event, started


class Tagged(Record):
    at: int
    key: str
    tags: list[str]


def tagged(event: Event) -> Tagged:
    return Tagged(event.at, event.key, [event.key] * (event.id % 3))


def exploded(events: Stream[Event], **given: Any) -> Stream[Any]:
    return events.map(tagged).explode("tags", **given)


@pytest.mark.parametrize("parallelism", [1, 3])
def test_elements_are_counted_in_windows(parallelism: int) -> None:
    job = Job("exploded")
    windows = exploded(started(job)).key_by("tags").window(tumbling("5s"))
    windows.aggregate(n=count()).sink(MemorySink()).named("out")
    out = testing.run(job, {"in": IN_FOURS}, kills=2, seeds=2, parallelism=parallelism)["out"]
    assert sum(row.n for row in out) == sum(event.id % 3 for event in EVENTS)


def test_rows_without_elements_may_stay_and_other_columns_need_not_be_read() -> None:
    job = Job("exploded")
    rows = [tagged(event) for event in EVENTS]
    read = job.source(MemorySource(rows)).named("in")
    read.explode("tags", keep_empty=True).select("key").sink(MemorySink()).named("out")
    out = testing.run(job, {"in": rows})["out"]
    assert len(out) == sum(max(1, event.id % 3) for event in EVENTS)


def test_mistakes_are_named() -> None:
    events = started(Job("exploded"))
    with pytest.raises(GraphError, match="explode: no column 'tags'; there are id, key"):
        events.explode("tags")
    with pytest.raises(GraphError, match="explode: column 'id' is int64, and not a list"):
        events.explode("id")
    changes = events.map(tagged).key_by("key").aggregate(tags=col("tags").last()).changes()
    with pytest.raises(GraphError, match="these rows are changes of the table"):
        changes.explode("tags")
