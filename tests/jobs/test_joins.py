"""Results of joins, compared with plain Python over the same rows, while tasks are killed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from clonos_py import Job, Stream, as_of, between, col, forever, hopping, tumbling, until
from clonos_py.connectors import MemorySink, MemorySource
from tests.jobs.rows import EVENTS, SECOND, Event, both_parallelisms, ran, starts_of_windows, values


def sides(events: Stream[Event]) -> tuple[Stream[Any], Stream[Any]]:
    left = events.filter(col("value") > 0).select("key", "at", left=col("id"))
    right = events.filter(col("value") <= 0).select(other=col("key"), time=col("at"), right=col("id"))
    return left, right


MATCHES = [(a, b) for a in EVENTS for b in EVENTS if a.key == b.key and a.value > 0 >= b.value]


@both_parallelisms
@pytest.mark.parametrize("slide", [10, 5])
def test_a_window_join_equals_plain_python(slide: int, parallelism: int) -> None:
    def body(events: Stream[Event]) -> Stream[Any]:
        left, right = sides(events)
        joined = left.join(right, on=("key", "other"), within=hopping("10s", f"{slide}s"))
        return joined.select("left", "right", "window_end")

    expected = Counter(
        (a.id, b.id, start + 10 * SECOND)
        for a, b in MATCHES
        for start in starts_of_windows(a, 10 * SECOND, slide * SECOND)
        if start <= b.at < start + 10 * SECOND
    )
    assert values(ran(body, parallelism)) == expected


@both_parallelisms
def test_a_join_over_all_of_history_equals_plain_python(parallelism: int) -> None:
    def body(events: Stream[Event]) -> Stream[Any]:
        left, right = sides(events)
        return left.join(right, on=("key", "other"), within=forever()).select("left", "right")

    assert values(ran(body, parallelism)) == Counter((a.id, b.id) for a, b in MATCHES)


@both_parallelisms
@pytest.mark.parametrize(("lower", "upper"), [(-5, 0), (-2, 7), (3, 9)])
def test_a_join_with_time_bounds_equals_plain_python(lower: int, upper: int, parallelism: int) -> None:
    def body(events: Stream[Event]) -> Stream[Any]:
        left, right = sides(events)
        within = between(f"{lower}s", f"{upper}s")
        return left.join(right, on=("key", "other"), within=within).select("left", "right")

    near = Counter((a.id, b.id) for a, b in MATCHES if lower * SECOND <= b.at - a.at <= upper * SECOND)
    assert 0 < near.total() < len(MATCHES) // 2
    assert values(ran(body, parallelism)) == near


def test_null_keys_match_nothing() -> None:
    def body(events: Stream[Event]) -> Stream[Any]:
        left, right = events.select("note", left=col("id")), events.select("note", right=col("id"))
        return left.join(right, on="note", within=forever()).select("left", "right")

    assert values(ran(body, 1)) == Counter((event.id, event.id) for event in EVENTS if event.note is not None)


SIDE = [(a, b, at) for at in (0, 1) for a in (0, 1) for b in (0, 1)]
"""Rows of either side: two columns, and an event time in seconds, in which they are in order."""
CONDITIONS = [
    [("a", "x"), ("b", "x")],
    [("a", "x"), ("a", "y")],
    [("a", "x"), ("a", "x")],
    [("at", "time")],
    [("at", "time"), ("seconds", "s")],
]
"""Columns that are compared twice, or are keys and event times."""
WITHIN: dict[str, Any] = {
    "tumbling": tumbling("1h"),
    "between": between("-1h", "1h"),
    "until": until("at"),
    "as_of": as_of(),
    "forever": forever(),
    "forever with a ttl": forever(ttl="1h"),
}


def side(job: Job, names: Sequence[str], seconds: str) -> Stream[Any]:
    rows = pa.table({name: [row[place] for row in SIDE] for place, name in enumerate((*names[:2], seconds))})
    return (
        job.source(MemorySource(rows))
        .named(names[2])
        .with_columns(**{names[2]: col(seconds) * SECOND})
        .with_event_time(names[2])
    )


@pytest.mark.parametrize("conditions", CONDITIONS)
@pytest.mark.parametrize("kind", WITHIN)
def test_a_column_may_be_compared_twice_and_be_the_event_time(kind: str, conditions: list[Any]) -> None:
    def holds(left: tuple[int, ...], right: tuple[int, ...]) -> bool:
        ours = dict(zip(("a", "b", "seconds", "at"), (*left, left[2]), strict=True))
        theirs = dict(zip(("x", "y", "s", "time"), (*right, right[2]), strict=True))
        in_time = {"until": left[2] == right[2], "as_of": left[2] >= right[2]}.get(kind, True)
        return in_time and all(ours[first] == theirs[second] for first, second in conditions)

    matches = [(left, right) for left in SIDE for right in SIDE if holds(left, right)]
    if kind == "as_of":  # the last of the latest
        matches = list(dict(sorted(matches, key=lambda pair: pair[1][2])).items())
    job, sink = Job("twice"), MemorySink(f"twice-{kind}-{conditions}")
    left, right = side(job, ("a", "b", "at"), "seconds"), side(job, ("x", "y", "time"), "s")
    left.join(right, on=conditions, within=WITHIN[kind]).select("a", "b", "seconds", "x", "y", "s").sink(sink)
    job.run(runtime="local")
    found: Any = sink.table()
    assert Counter(tuple(row.values()) for row in found.to_pylist()) == Counter(
        (*one, *other) for one, other in matches
    )
