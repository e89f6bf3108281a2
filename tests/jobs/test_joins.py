"""Results of joins, compared with plain Python over the same rows, while tasks are killed."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from clonos_py import Stream, between, col, forever, hopping
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
