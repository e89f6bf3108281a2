"""Count windows, compared with plain Python over the rows as they came, while tasks are killed."""

from __future__ import annotations

from typing import Any

import pytest

from clonos_py import Record, col, count, counted
from tests.jobs.rows import BY_KEY, EVENTS, Event, both_parallelisms, ran, values


class Seen(Record):
    key: str
    rows: int
    sum: int
    all: list[int]
    different: int


class Place(Record):
    key: str
    value: int
    id: int
    place: int


AGGREGATES: dict[str, Any] = {
    "rows": count(),
    "sum": (col("value") * 2).sum(),
    "all": col("id").collect(),
    "different": col("value").count_distinct(),
}
WINDOWS = {
    "tumbling": (counted(3), 3, 3, False),
    "sliding, and what is incomplete": (counted(4, every=2, incomplete=True), 4, 2, True),
}
windows = pytest.mark.parametrize(("window", "size", "every", "incomplete"), WINDOWS.values(), ids=WINDOWS)


def cut(events: list[Event], size: int, every: int, incomplete: bool) -> list[list[Event]]:
    starts = range(0, len(events), every)
    return [events[start : start + size] for start in starts if incomplete or start + size <= len(events)]


@both_parallelisms
@windows
def test_aggregates_equal_plain_python(window: Any, size: int, every: int, incomplete: bool, parallelism: int) -> None:
    rows = ran(lambda events: events.key_by("key").window(window).aggregate(Seen, **AGGREGATES), parallelism)
    found = {key: [(row.rows, row.sum, row.all, row.different) for row in rows if row.key == key] for key in BY_KEY}
    assert found == {
        key: [
            (len(part), 2 * sum(e.value for e in part), [e.id for e in part], len({e.value for e in part}))
            for part in cut(events, size, every, incomplete)
        ]
        for key, events in BY_KEY.items()
    }


@both_parallelisms
@windows
def test_first_rows_equal_plain_python(window: Any, size: int, every: int, incomplete: bool, parallelism: int) -> None:
    rows = ran(
        lambda events: events.key_by("key").window(window).top(2, by=col("value").desc(), into=Place, rank="place"),
        parallelism,
    )
    expected = [
        Place(key, event.value, event.id, place)
        for key, events in BY_KEY.items()
        for part in cut(events, size, every, incomplete)
        for place, event in enumerate(sorted(part, key=lambda event: -event.value)[:2], 1)
    ]
    assert values(rows) == values(expected)


def test_without_a_key_all_rows_are_counted_together() -> None:
    rows = ran(lambda events: events.window(counted(7)).aggregate(ids=col("id").collect()), 2)
    assert [row.ids for row in rows] == [list(range(start, start + 7)) for start in range(0, len(EVENTS) - 6, 7)]
