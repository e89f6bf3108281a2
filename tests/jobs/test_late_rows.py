"""Late rows of one bounded partition, compared with a loop over its rows: they do not depend on how it is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clonos_py import (
    Context,
    Instant,
    Job,
    Process,
    Record,
    Stream,
    UserAggregate,
    aggregate_by,
    as_of,
    between,
    col,
    count,
    cumulative,
    hopping,
    last,
    session,
    testing,
    tumbling,
)
from clonos_py.connectors import MemorySink, MemorySource

OUT_OF_ORDER = 4


class Event(Record):
    id: int
    key: int
    at: Instant


class Shifted(Record):
    id: int
    key: int
    at: Instant


class Id(Record):
    id: int


class Passing(Process[Event, Id]):
    def on_row(self, row: Event, ctx: Context) -> Iterator[Id]:
        yield Id(row.id)


def two(row: Event) -> Iterator[Shifted]:
    yield Shifted(row.id, row.key, row.at)
    yield Shifted(row.id + 1_000, row.key, row.at)


def odd(row: Event) -> bool:
    return row.id % 2 == 1


def watermarks(events: list[Event]) -> Iterator[tuple[Event, int]]:
    """Each row with the watermark that it finds."""
    highest: int | None = None
    for event in events:
        yield event, -(2**62) if highest is None else highest - OUT_OF_ORDER
        highest = event.at if highest is None else max(highest, event.at)


def late(events: list[Event], until: Callable[[int], int]) -> list[int]:
    """The ids of the rows for which event time has passed ``until``."""
    return [event.id for event, watermark in watermarks(events) if until(event.at) <= watermark]


Verb = Callable[[Stream[Any]], Stream[Any]]
WINDOWS: dict[str, tuple[Any, str, Callable[[int], int]]] = {
    "tumbling": (tumbling("10us"), "0s", lambda at: at // 10 * 10 + 10),
    "with lateness": (tumbling("10us"), "3us", lambda at: at // 10 * 10 + 13),
    "hopping": (hopping("10us", "5us"), "0s", lambda at: at // 5 * 5 + 10),
    "cumulative": (cumulative("10us", "5us"), "0s", lambda at: at // 10 * 10 + 10),
}
BEFORE: dict[str, tuple[Verb, Callable[[list[int]], list[int]]]] = {
    "nothing": (lambda events: events, lambda ids: ids),
    "a filter": (lambda events: events.filter(col("id") % 3 > 0), lambda ids: [n for n in ids if n % 3]),
    "a function": (lambda events: events.filter(odd), lambda ids: [n for n in ids if n % 2]),
    "two rows for one": (lambda events: events.flat_map(two), lambda ids: [m for n in ids for m in (n, n + 1_000)]),
    "columns": (lambda events: events.select("key", "at", id=col("id") + 5), lambda ids: [n + 5 for n in ids]),
    "a rebalance": (lambda events: events.rebalance(), lambda ids: ids),
    "an assignment": (lambda events: events.with_event_time("at", delay="4us"), lambda ids: ids),
}

EVENTS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 60)), min_size=1, max_size=40).map(
    lambda found: [Event(number, key, at) for number, (key, at) in enumerate(found)]
)
READS = st.lists(st.integers(1, 9), min_size=1, max_size=5)


def reads(events: list[Event], sizes: list[int]) -> list[list[Event]]:
    found: list[list[Event]] = []
    start = 0
    while start < len(events):
        size = sizes[len(found) % len(sizes)]
        found.append(events[start : start + size])
        start += size
    return found


def started(job: Job) -> Stream[Event]:
    source = MemorySource([Event(0, 0, 0)])
    return job.source(source, event_time="at", out_of_order="4us").named("in")


@pytest.mark.parametrize(
    ("before", "parallelism"),
    [*((before, 1) for before in BEFORE), ("nothing", 2)],  # what lies before the shuffle runs in one task
)
@pytest.mark.parametrize("window", WINDOWS)
def test_late_rows_of_windows_follow_from_the_rows_alone(window: str, before: str, parallelism: int) -> None:
    shape, lateness, until = WINDOWS[window]
    verb, of = BEFORE[before]

    @settings(max_examples=8)
    @given(EVENTS, READS)
    def holds(events: list[Event], sizes: list[int]) -> None:
        job = Job("late-rows")
        keyed = verb(started(job)).key_by("key")
        results, missed = keyed.window(shape, lateness=lateness).aggregate(rows=count()).with_late()
        results.sink(MemorySink()).named("results")
        missed.select("id").sink(MemorySink()).named("late")
        out = testing.run(job, {"in": reads(events, sizes)}, parallelism=parallelism)
        assert sorted(row.id for row in out["late"]) == sorted(of(late(events, until)))

    holds()


def counts_windows(job: Job) -> Stream[Any]:
    return started(job).key_by("key").window(tumbling("10us")).aggregate(id=count())


DROPPING: dict[str, tuple[Callable[[Job], Stream[Any]], Callable[[list[Event]], int]]] = {
    "a window without late rows": (
        counts_windows,
        lambda events: len(events) - len(late(events, lambda at: at // 10 * 10 + 10)),
    ),
    "a function in order of event time": (
        lambda job: started(job).key_by("key").process(Passing, in_order=True),
        lambda events: len(events) - len(late(events, lambda at: at + 1)),
    ),
    "an over": (
        lambda job: started(job).key_by("key").over(last("5us")).aggregate(rows=count()),
        lambda events: len(events) - len(late(events, lambda at: at + 1)),
    ),
}


@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize("what", DROPPING)
def test_dropped_rows_follow_from_the_rows_alone(what: str, parallelism: int) -> None:
    made, expected = DROPPING[what]

    @settings(max_examples=10)
    @given(EVENTS, READS)
    def holds(events: list[Event], sizes: list[int]) -> None:
        job = Job("dropped-rows")
        made(job).sink(MemorySink()).named("out")
        out = testing.run(job, {"in": reads(events, sizes)}, parallelism=parallelism)["out"]
        rows = sum(row.id for row in out) if what.startswith("a window") else len(out)
        assert rows == expected(events)

    holds()


SUM = UserAggregate(lambda: 0, lambda found, value: found + value, lambda a, b: a + b, lambda found: found)


JOINS: dict[str, tuple[Any, Callable[[int], int]]] = {
    "between": (between("-1h", "1h"), lambda at: at + 1),
    "in a window": (tumbling("10us"), lambda at: at // 10 * 10 + 10),
    "as of": (as_of(), lambda at: at + 1),
}


@pytest.mark.parametrize("kind", JOINS)
def test_late_rows_of_a_join_follow_from_the_rows_alone(kind: str) -> None:
    """The other side holds event time back to its end, and has a partner for each row."""
    within, until = JOINS[kind]

    @settings(max_examples=10)
    @given(EVENTS, READS)
    def holds(events: list[Event], sizes: list[int]) -> None:
        job = Job("joined-rows")
        left = started(job)
        partners = [Event(at, 0, at) for at in range(0, 61)] if kind != "as of" else [Event(0, 0, 0)]
        right = job.source(MemorySource(partners), event_time="at", out_of_order="1h").named("other")
        right = right.select(since="at", zero_too="key", other="id")
        on = ("zero", "zero_too")
        joined = left.with_columns(zero=col("key") * 0).join(right, on=on, within=within)
        joined.select("id").sink(MemorySink()).named("out")
        out = testing.run(job, {"in": reads(events, sizes)})["out"]
        gone = late(events, until)
        assert {row.id for row in out} == {event.id for event in events if event.id not in gone}

    holds()


class Visit(Record):
    key: int
    window_start: Instant
    window_end: Instant
    rows: int


def sessions(events: list[Event], gap: int, lateness: int) -> tuple[list[Visit], list[int]]:
    """The sessions, and the ids of the late rows."""
    spans: list[Visit] = []
    missed = []
    for event, watermark in watermarks(events):
        own = Visit(event.key, event.at, event.at + gap, 1)
        met = [
            span
            for span in spans
            if span.key == own.key and span.window_start <= own.window_end and own.window_start <= span.window_end
            if span.window_end + lateness >= watermark
        ]
        if not met and own.window_end + lateness < watermark:
            missed.append(event.id)
            continue
        every = [*met, own]
        start, end = min(s.window_start for s in every), max(s.window_end for s in every)
        merged = Visit(event.key, start, end, sum(s.rows for s in every))
        spans = [*(span for span in spans if all(span is not one for one in met)), merged]
    return spans, missed


SESSION_EVENTS = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 25)), min_size=1, max_size=40).map(
    lambda found: [Event(number, key, at + number) for number, (key, at) in enumerate(found)]
)


@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize("lateness", [0, 3])
@pytest.mark.parametrize("kind", ["combined", "late rows", "whole rows"])
def test_sessions_and_their_late_rows_follow_from_the_rows_alone(kind: str, lateness: int, parallelism: int) -> None:
    """A session that has ended takes no row that is behind, also if the row comes with the same read."""

    @settings(max_examples=15)
    @given(SESSION_EVENTS, READS)
    def holds(events: list[Event], sizes: list[int]) -> None:
        job = Job("sessions")
        aggregates = {"rows": count()} | ({"n": aggregate_by(SUM, "id", returns=int)} if kind == "whole rows" else {})
        windows = started(job).key_by("key").window(session("5us"), lateness=f"{lateness}us").aggregate(**aggregates)
        visits: Stream[Any] = windows
        if kind == "late rows":
            visits, missed = windows.with_late()
            missed.select("id").sink(MemorySink()).named("late")
        visits.select("key", "window_start", "window_end", "rows").sink(MemorySink()).named("visits")
        out = testing.run(job, {"in": reads(events, sizes)}, parallelism=parallelism)
        found = [Visit(row.key, row.window_start, row.window_end, row.rows) for row in out["visits"]]
        expected, late_ids = sessions(events, 5, lateness)
        if not lateness:
            assert sorted(found, key=str) == sorted(expected, key=str)
        else:
            assert {str(visit) for visit in expected} <= {str(visit) for visit in found}
        if kind == "late rows":
            assert sorted(row.id for row in out["late"]) == late_ids

    holds()
