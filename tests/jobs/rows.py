"""The rows that jobs of this folder run over, and shared functions to run and compare."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from clonos_py import Instant, Job, Record, Stream, at, testing
from clonos_py.connectors import MemorySink, MemorySource

SECOND = at("1s")
HALF = SECOND // 2
KEYS = "abcdefg"


class Event(Record):
    id: int
    key: str
    value: int
    at: Instant
    note: str | None = None


class Pair(Record):
    key: str
    value: int


class Total(Record):
    key: str
    window_start: Instant
    window_end: Instant
    rows: int
    sum: int
    least: int
    most: int
    mean: float
    notes: int
    different: int


def some_events() -> list[Event]:
    """Seven keys; a row is at most four seconds behind an earlier one."""
    draw = random.Random(5)
    return [
        Event(
            number, draw.choice(KEYS), draw.randrange(-50, 50),
            10 * SECOND + number * SECOND // 2 - draw.randrange(4) * SECOND, None if number % 3 else f"n{number}",
        )
        for number in range(60)
    ]  # fmt: skip


EVENTS = some_events()
IN_FOURS = [EVENTS[start : start + 4] for start in range(0, len(EVENTS), 4)]
"""As ``testing.run`` is to take them in."""
BY_KEY = {key: [event for event in EVENTS if event.key == key] for key in KEYS}

SEEDS = 2
"""Runs with two kills each, beside one without. A restore that loses its state is found in as many jobs by two as by
three; rare schedules are those of the simulator's own tests."""

Body = Callable[[Stream[Event]], Stream[Any]]

both_parallelisms = pytest.mark.parametrize("parallelism", [pytest.param(1, marks=pytest.mark.thorough), 2])
"""Two tasks of an operator fail as one does, and exchange rows besides."""


def started(job: Job, out_of_order: str = "4s") -> Stream[Event]:
    return job.source(MemorySource(EVENTS), event_time="at", out_of_order=out_of_order).named("in")


def ran(body: Body, parallelism: int, seeds: int = SEEDS) -> list[Any]:
    job = Job("semantics")
    body(started(job)).sink(MemorySink()).named("out")
    return testing.run(job, {"in": IN_FOURS}, kills=2, seeds=seeds, parallelism=parallelism)["out"]


def values(rows: Sequence[Record]) -> Counter[tuple[Any, ...]]:
    """Rows as values, without their class and order."""
    return Counter(tuple(getattr(row, name) for name in row.__struct_fields__) for row in rows)


def starts_of_windows(event: Event, size: int, slide: int) -> Iterator[int]:
    start = event.at // slide * slide
    while start > event.at - size:
        yield start
        start -= slide
