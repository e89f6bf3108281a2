"""Results of process functions, compared with plain Python over the same rows, while tasks are killed."""

from __future__ import annotations

import itertools
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from clonos_py import (
    Context,
    Instant,
    Job,
    MapState,
    Process,
    Record,
    event_timer,
    map_state,
    processing_timer,
    state,
    testing,
)
from clonos_py.connectors import MemorySink
from tests.jobs.rows import BY_KEY, EVENTS, IN_FOURS, SECOND, SEEDS, Event, both_parallelisms, ran, started, values


class Numbered(Record):
    id: int
    number: int


class Flushed(Record):
    at: Instant
    sum: int


class Bursts(Process[Event, Numbered | Flushed]):
    """Numbers the rows of a burst, which ends when five seconds pass without a row."""

    number: int = state(0)
    rests: MapState[int, int] = map_state()
    quiet = event_timer()

    def on_row(self, event: Event, ctx: Context) -> Iterator[Numbered | Flushed]:
        self.number += 1
        self.rests[event.id % 5] = self.rests.get(event.id % 5, 0) + 1
        self.quiet.set(event.at + 5 * SECOND)
        yield Numbered(event.id, self.number)

    @quiet.fires
    def over(self, ctx: Context) -> Iterator[Numbered | Flushed]:
        yield Flushed(ctx.event_time, sum(self.rests.values()) * 10 + len(self.rests))
        self.number = 0
        self.rests.clear()


def bursts(left_out: Callable[[Event], bool] = lambda event: False) -> Iterator[list[Event]]:
    for events in BY_KEY.values():
        burst: list[Event] = []
        for event in sorted(itertools.filterfalse(left_out, events), key=lambda event: (event.at, event.id)):
            if burst and event.at - burst[-1].at >= 5 * SECOND:
                yield burst
                burst = []
            burst.append(event)
        yield burst


@both_parallelisms
def test_a_process_in_order_with_timers_and_split_results_equals_plain_python(parallelism: int) -> None:
    job = Job("semantics")
    numbered, flushed = started(job).key_by("key").process(Bursts, in_order=True).split(Numbered, Flushed)
    numbered.sink(MemorySink()).named("numbered")
    flushed.sink(MemorySink()).named("flushed")
    out = testing.run(job, {"in": IN_FOURS}, kills=2, seeds=SEEDS, parallelism=parallelism)
    assert values(out["numbered"]) == Counter((e.id, n) for burst in bursts() for n, e in enumerate(burst, 1))
    assert values(out["flushed"]) == Counter(
        (burst[-1].at + 5 * SECOND, len(burst) * 10 + len({e.id % 5 for e in burst})) for burst in bursts()
    )


class Fading(Process[Event, Numbered]):
    number: int = state(0, ttl="5s")

    def on_row(self, event: Event, ctx: Context) -> Numbered:
        self.number += 1
        return Numbered(event.id, self.number)


@both_parallelisms
def test_in_order_a_ttl_depends_only_on_the_rows(parallelism: int) -> None:
    rows = ran(lambda events: events.key_by("key").process(Fading, in_order=True), parallelism)
    assert values(rows) == Counter((e.id, n) for burst in bursts() for n, e in enumerate(burst, 1))


class Alarm(Record):
    key: str
    rows: int


class Alarms(Process[Event, Alarm]):
    """Emits the number of rows since the last alarm, a while after each."""

    key: str = state("")
    rows: int = state(0)
    soon = processing_timer()

    def on_row(self, event: Event, ctx: Context) -> Iterator[Alarm]:
        self.key = event.key
        self.rows += 1
        if self.rows == 4:
            yield self.alarm()
        elif self.rows == 1:
            self.soon.set(ctx.time.now() + 1_000)

    @soon.fires
    def rung(self, ctx: Context) -> Iterator[Alarm]:
        yield self.alarm()

    def alarm(self) -> Alarm:
        alarm = Alarm(self.key, self.rows)
        self.rows = 0
        return alarm


@both_parallelisms
def test_timers_in_processing_time_lose_and_double_no_row(parallelism: int) -> None:
    for seed in range(SEEDS):
        job = Job("semantics")
        started(job).key_by("key").process(Alarms).sink(MemorySink()).named("out")
        out = testing.run(job, {"in": IN_FOURS}, kills=2, first_seed=seed, parallelism=parallelism)["out"]
        for key, events in BY_KEY.items():
            counted = sum(row.rows for row in out if row.key == key)
            assert len(events) - 4 < counted <= len(events), "only rows that wait for a timer at the end may be missing"


class PickyBursts(Bursts):
    """Fails on some rows, and at the end of a burst of one row, after it has changed all its state."""

    def on_row(self, event: Event, ctx: Context) -> Iterator[Numbered | Flushed]:
        yield from super().on_row(event, ctx)
        if event.id % 10 == 3:
            raise ValueError(f"number {event.id}")

    def over(self, ctx: Context) -> Iterator[Numbered | Flushed]:
        lonely = self.number == 1
        yield from super().over(ctx)
        if lonely:
            raise ValueError("lonely")


@both_parallelisms
def test_rows_and_timers_that_fail_in_a_process_are_caught_once_each(parallelism: int) -> None:
    job = Job("semantics")
    good, failed = started(job).key_by("key").process(PickyBursts, in_order=True).named("picky").catch()
    numbered, flushed = good.split(Numbered, Flushed)
    numbered.sink(MemorySink()).named("numbered")
    flushed.sink(MemorySink()).named("flushed")
    failed.sink(MemorySink()).named("failed")
    out = testing.run(job, {"in": IN_FOURS}, kills=2, seeds=SEEDS, parallelism=parallelism)
    counted, over, lonely = Counter[Any](), Counter[Any](), Counter[Any]()
    open_bursts: dict[str, list[Event]] = defaultdict(list)
    for burst in bursts(left_out=lambda event: event.id % 10 == 3):
        rows, end = open_bursts[burst[0].key], burst[-1].at + 5 * SECOND
        counted.update((e.id, n) for n, e in enumerate(burst, len(rows) + 1))
        rows.extend(burst)
        if len(rows) == 1:
            lonely[end] += 1
        else:
            over[end, len(rows) * 10 + len({e.id % 5 for e in rows})] += 1
            rows.clear()
    assert values(out["numbered"]) == counted
    assert values(out["flushed"]) == over
    letters = [json.loads(letter.record) for letter in out["failed"]]
    assert Counter(letter["at"] for letter in letters if "timer" in letter) == lonely != Counter()
    assert sorted(row["id"] for row in letters if "timer" not in row) == [e.id for e in EVENTS if e.id % 10 == 3]
    assert {letter.operator for letter in out["failed"]} == {"picky"}
