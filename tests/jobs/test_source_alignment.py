"""A source that would run ahead waits for a slower one, whatever dies, and gives the same rows."""

from __future__ import annotations

from typing import Any

import pytest

from clonos_py import Instant, Job, Record, testing
from clonos_py.connectors import MemorySink, MemorySource
from clonos_py.model.errors import GraphError
from clonos_py.plan.physical import plan
from clonos_py.settings.resolution import resolve
from tests.jobs.rows import SECOND

AHEAD = 20


class Row(Record):
    source: str
    at: Instant


FAST = [Row("fast", number * 10 * SECOND) for number in range(60)]
SLOW = [Row("slow", number * SECOND) for number in range(600)]


def job(ahead: str | None) -> Job:
    job = Job("aligned")
    fast = job.source(MemorySource(FAST), event_time="at", ahead=ahead).named("fast")
    slow = job.source(MemorySource(SLOW), event_time="at").named("slow")
    fast.union(slow).select("source", "at").sink(MemorySink()).named("out")
    return job


def furthest(ahead: str | None, **given: Any) -> int:
    """How many seconds a row of the fast source was ahead of the slow one where it came in, at most."""
    slow = [SLOW[start : start + 5] for start in range(0, len(SLOW), 5)]
    out = testing.run(job(ahead), {"fast": FAST, "slow": slow}, **given)["out"]
    assert sorted((row.at, row.source) for row in out) == sorted((row.at, row.source) for row in (*FAST, *SLOW))
    most, reached = 0, 0
    for row in out:
        if row.source == "slow":
            reached = max(reached, row.at)
        else:
            most = max(most, row.at - reached)
    return most // SECOND


def test_a_fast_source_waits_for_a_slow_one() -> None:
    """Its reads and those on their way come on top."""
    assert furthest(f"{AHEAD}s") <= AHEAD + 30
    assert furthest(None) > 2 * (AHEAD + 30)


def test_the_event_time_of_every_source_is_read_where_one_waits() -> None:
    made = plan(job("20s"), resolve({}))
    assert [v.source.event_time.columns for v in made.vertices if v.source is not None] == [("at",), ("at",)]


def test_failures_change_nothing_in_the_rows() -> None:
    furthest(f"{AHEAD}s", kills=2, seeds=3, parallelism=2)


def test_mistakes_are_named() -> None:
    with pytest.raises(GraphError, match="source: ahead='1m': it is a distance in event time, so it needs event_time="):
        Job("untimed").source(MemorySource(FAST), ahead="1m")
