"""The first, the last and all values of a group, compared with plain Python over the rows as they came, while tasks are
killed."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from clonos_py import Instant, Record, Stream, col, hopping, session, tumbling
from clonos_py.model.windows import Hopping, Tumbling
from tests.jobs.rows import EVENTS, SECOND, Event, both_parallelisms, ran, starts_of_windows


class Values(Record):
    key: str
    first: int
    last: int
    all: list[int]
    notes: list[str]
    first_note: str | None


class Window(Record):
    key: str
    window_end: Instant
    first: int
    last: int
    all: list[int]
    notes: list[str]
    first_note: str | None


AGGREGATES: dict[str, Any] = {
    "first": col("value").first(),
    "last": col("value").last(),
    "all": col("value").collect(),
    "notes": col("note").collect(),
    "first_note": col("note").first(),
}


def expected(events: list[Event]) -> tuple[int, int, list[int], list[str], str | None]:
    found = [event.value for event in events]
    notes = [event.note for event in events if event.note is not None]
    return found[0], found[-1], found, notes, notes[0] if notes else None


@both_parallelisms
def test_ordered_aggregates_of_windows_equal_plain_python(parallelism: int) -> None:
    for window, size, slide in ((tumbling("10s"), 10, 10), (hopping("10s", "2s"), 10, 2)):

        def body(events: Stream[Event], window: Tumbling | Hopping = window) -> Stream[Window]:
            return events.key_by("key").window(window).aggregate(Window, **AGGREGATES)

        groups = defaultdict[tuple[str, int], list[Event]](list)
        for event in EVENTS:
            for start in starts_of_windows(event, size * SECOND, slide * SECOND):
                groups[event.key, start + size * SECOND].append(event)
        found = {(row.key, row.window_end): aggregates_of(row) for row in ran(body, parallelism)}
        assert found == {group: expected(events) for group, events in groups.items()}


def aggregates_of(row: Any) -> tuple[Any, ...]:
    return row.first, row.last, row.all, row.notes, row.first_note


@both_parallelisms
def test_ordered_aggregates_of_tables_and_sessions_equal_plain_python(parallelism: int) -> None:
    rows = ran(lambda events: events.key_by("key").aggregate(Values, **AGGREGATES).at_end(), parallelism)
    by_key = defaultdict[str, list[Event]](list)
    for event in EVENTS:
        by_key[event.key].append(event)
    assert {row.key: aggregates_of(row) for row in rows} == {key: expected(events) for key, events in by_key.items()}
    rows = ran(lambda events: events.key_by("key").window(session("1h")).aggregate(Window, **AGGREGATES), parallelism)
    assert {row.key: aggregates_of(row) for row in rows} == {key: expected(events) for key, events in by_key.items()}
