"""Jobs that sort their rows by event time, or take the first ones, whatever dies."""

from __future__ import annotations

from typing import Any

import pytest

from clonos_py import Job, Stream, count, testing, tumbling
from clonos_py.connectors import MemorySink, MemorySource
from clonos_py.model.errors import GraphError
from tests.jobs.rows import BY_KEY, EVENTS, IN_FOURS, SECOND, Event, ran, started

IN_TIME = sorted(EVENTS, key=lambda event: event.at)


def ids(rows: list[Any]) -> list[int]:
    return [row.id for row in rows]


@pytest.mark.parametrize("parallelism", [1, 3])
def test_all_rows_leave_in_the_order_of_event_time(parallelism: int) -> None:
    assert ids(ran(lambda events: events.sort(), parallelism)) == ids(IN_TIME)


def test_rows_of_a_key_are_sorted_in_several_tasks() -> None:
    found = ran(lambda events: events.key_by("key").sort(), 3)
    for key, events in BY_KEY.items():
        assert ids([row for row in found if row.key == key]) == ids(sorted(events, key=lambda event: event.at))


def test_windows_and_folds_behind_it_follow_that_order() -> None:
    def windows(events: Stream[Event]) -> Stream[Any]:
        return events.sort().key_by("key").window(tumbling("5s")).aggregate(rows=count())

    assert sum(row.rows for row in ran(windows, 2)) == len(EVENTS)
    firsts = ran(lambda events: events.key_by("key").sort().distinct("key"), 2)
    assert sorted(ids(firsts)) == sorted(min(events, key=lambda event: event.at).id for events in BY_KEY.values())


@pytest.mark.parametrize("late", ["drop", "pass"])
def test_late_rows_are_dropped_or_pass(late: Any) -> None:
    rows = [Event(number, "a", 0, at * SECOND) for number, at in enumerate((10, 30, 15, 31, 40))]
    job = Job("late")
    events = job.source(MemorySource(rows), event_time="at", out_of_order="5s").named("in")
    events.sort(late=late).sink(MemorySink()).named("out")
    out = testing.run(job, {"in": rows}, kills=1, seeds=2)["out"]
    assert ids(out) == ([0, 2, 1, 3, 4] if late == "pass" else [0, 1, 3, 4])


@pytest.mark.parametrize("parallelism", [1, 3])
def test_just_so_many_rows_pass_a_limit(parallelism: int) -> None:
    found = ran(lambda events: events.rebalance().limit(10), parallelism)
    assert len(set(ids(found))) == len(found) == 10
    assert ids(ran(lambda events: events.limit(10), 1)) == ids(EVENTS[:10])
    assert len(ran(lambda events: events.limit(100).select("key"), parallelism)) == len(EVENTS)


def counted(events: Stream[Event]) -> Stream[Any]:
    return events.limit(5).aggregate(rows=count()).at_end()


def test_what_is_behind_a_full_limit_ends_with_it() -> None:
    """The source is read no further, once a checkpoint has the full limit."""
    for kills in (0, 2):
        job = Job("ending")
        rows = [Event(number, "a", 0, number * SECOND) for number in range(3_000)]
        read: list[int] = []

        def noted(event: Event, read: list[int] = read) -> Event:
            read.append(event.id)
            return event

        counted(job.source(MemorySource(rows)).named("in").map(noted)).sink(MemorySink()).named("out")
        assert [row.rows for row in testing.run(job, {"in": rows}, kills=kills, seeds=1)["out"]] == [5]
        assert len(set(read)) < len(rows)


def test_a_source_that_others_need_is_read_to_its_end() -> None:
    job = Job("needed")
    events = started(job)
    events.limit(5).sink(MemorySink()).named("out")
    events.select("id").sink(MemorySink()).named("all")
    out = testing.run(job, {"in": IN_FOURS}, kills=2, seeds=3, parallelism=2)
    assert len(out["out"]) == 5
    assert len(out["all"]) == len(EVENTS)


def test_a_limit_of_sorted_rows_is_their_beginning() -> None:
    assert ids(ran(lambda events: events.sort().limit(7), 3)) == ids(IN_TIME[:7])


def test_mistakes_are_named() -> None:
    events = started(Job("ordered"))
    for n in (0, -1, 1.5, True):
        with pytest.raises(GraphError, match=r"limit: n is .*: it must be a number of rows, at least 1"):
            events.limit(n)  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="sort: late is 'keep': it must be 'drop' or 'pass'"):
        events.sort(late="keep")  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="sort: this stream has no event time; say which column it is"):
        Job("untimed").source(MemorySource(EVENTS)).sort()
    changes = events.key_by("key").aggregate(n=count()).changes()
    for verb in ("sort", "limit"):
        with pytest.raises(GraphError, match=f"{verb}: these rows are changes of the table"):
            getattr(changes, verb)(*[3] * (verb == "limit"))
    with pytest.raises(GraphError, match="all rows meet in one task here, not in 2: write key_by before it"):
        events.sort().parallelism(2)
