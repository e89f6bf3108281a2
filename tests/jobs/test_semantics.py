"""What each verb gives, compared with plain Python over the same rows, while tasks are killed."""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from clonos_py import (
    Context,
    Instant,
    Job,
    MapState,
    Process,
    Record,
    Stream,
    UserAggregate,
    aggregate_by,
    at,
    between,
    col,
    count,
    event_timer,
    forever,
    hopping,
    map_state,
    processing_timer,
    service,
    session,
    state,
    testing,
    tumbling,
)
from clonos_py.connectors import MemorySink, MemorySource
from clonos_py.model.connectors import SourceDefinition
from clonos_py.model.operators import End, Read, Source, Wait
from clonos_py.runtime.sim.run import Outcome, simulate_plan

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


def some_events() -> list[Event]:
    """Seven keys; a row is at most four seconds behind an earlier one."""
    draw = random.Random(5)
    return [
        Event(
            number, draw.choice(KEYS), draw.randrange(-50, 50),
            10 * SECOND + number * SECOND // 2 - draw.randrange(4) * SECOND, None if number % 3 else f"n{number}",
        )
        for number in range(120)
    ]  # fmt: skip


EVENTS = some_events()
BY_KEY = {key: [event for event in EVENTS if event.key == key] for key in KEYS}

Body = Callable[[Stream[Event]], Stream[Any]]

both_parallelisms = pytest.mark.parametrize("parallelism", [1, 2])


def started(job: Job, out_of_order: str = "4s") -> Stream[Event]:
    return job.source(MemorySource(EVENTS), event_time="at", out_of_order=out_of_order).named("in")


def ran(body: Body, parallelism: int, seeds: int = 6) -> list[Any]:
    job = Job("semantics")
    body(started(job)).sink(MemorySink()).named("out")
    return testing.run(job, {"in": EVENTS}, kills=2, seeds=seeds, parallelism=parallelism)["out"]


def values(rows: Sequence[Record]) -> Counter[tuple[Any, ...]]:
    """Rows as values, whatever their class and order."""
    return Counter(tuple(getattr(row, name) for name in row.__struct_fields__) for row in rows)


def doubled(event: Event) -> Pair:
    return Pair(event.key, event.value * 2)


def repeated(event: Event) -> Iterator[Pair]:
    for number in range(event.id % 3):
        yield Pair(event.key, number)


def incremented(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([batch["key"], pc.add(batch["value"], 1)], schema=Pair.schema())


def reunited(events: Stream[Event]) -> Stream[Pair]:
    positive, others = events.filter(col("value") > 0), events.filter(col("value") <= 0).rebalance()
    return positive.union(others).select(Pair)


ROW_VERBS: Mapping[str, tuple[Body, list[Pair]]] = {
    "map": (lambda events: events.map(doubled), [Pair(e.key, e.value * 2) for e in EVENTS]),
    "flat_map": (
        lambda events: events.flat_map(repeated).rebalance(),
        [Pair(e.key, number) for e in EVENTS for number in range(e.id % 3)],
    ),
    "filter by function": (
        lambda events: events.filter(lambda event: event.value > 0).rebalance().select(Pair),
        [Pair(e.key, e.value) for e in EVENTS if e.value > 0],
    ),
    "filter, null is not true": (
        lambda events: events.filter(col("note") != "n3").select(Pair, value=col("value") * 2 + 1),
        [Pair(e.key, e.value * 2 + 1) for e in EVENTS if e.note not in (None, "n3")],
    ),
    "map_batches": (
        lambda events: events.map_batches(incremented, returns=Pair),
        [Pair(e.key, e.value + 1) for e in EVENTS],
    ),
    "union": (reunited, [Pair(e.key, e.value) for e in EVENTS]),
}


@both_parallelisms
@pytest.mark.parametrize("verb", ROW_VERBS)
def test_verbs_of_rows(verb: str, parallelism: int) -> None:
    body, expected = ROW_VERBS[verb]
    assert values(ran(body, parallelism)) == values(expected)


AGGREGATES = {
    "rows": count(), "sum": col("value").sum(), "least": col("value").min(), "most": col("value").max(),
    "mean": col("value").mean(), "notes": col("note").count(),
}  # fmt: skip


def total(start: int, end: int, events: Sequence[Event]) -> Total:
    found = [event.value for event in events]
    notes = sum(event.note is not None for event in events)
    return Total(
        events[0].key, start, end, len(found), sum(found), min(found), max(found), sum(found) / len(found), notes
    )


def starts_of_windows(event: Event, size: int, slide: int) -> Iterator[int]:
    start = event.at // slide * slide
    while start > event.at - size:
        yield start
        start -= slide


def in_windows(size: int, slide: int) -> list[Total]:
    windows: defaultdict[tuple[str, int], list[Event]] = defaultdict(list)
    for event in EVENTS:
        for start in starts_of_windows(event, size, slide):
            windows[event.key, start].append(event)
    return [total(start, start + size, events) for (_, start), events in windows.items()]


def in_sessions(gap: int) -> list[Total]:
    found = []
    for events in BY_KEY.values():
        ordered = sorted(events, key=lambda event: event.at)
        breaks = [n for n in range(1, len(ordered)) if ordered[n].at - ordered[n - 1].at >= gap]
        for first, behind in itertools.pairwise([0, *breaks, len(ordered)]):
            part = ordered[first:behind]
            found.append(total(part[0].at, part[-1].at + gap, part))
    return found


@both_parallelisms
@pytest.mark.parametrize(
    ("window", "expected"),
    [
        (tumbling("10s"), in_windows(10 * SECOND, 10 * SECOND)),
        (hopping("10s", "2s"), in_windows(10 * SECOND, 2 * SECOND)),
        (session("3s"), in_sessions(3 * SECOND)),
    ],
    ids=["tumbling", "hopping", "session"],
)
def test_windows_in_event_time(window: Any, expected: list[Total], parallelism: int) -> None:
    rows = ran(lambda events: events.key_by("key").window(window).aggregate(Total, **AGGREGATES), parallelism)
    assert values(rows) == values(expected)


@both_parallelisms
@pytest.mark.parametrize(
    ("window", "times"),
    [
        (tumbling(3_000, processing_time=True), 1),
        (hopping(4_000, 2_000, processing_time=True), 2),
        (session(2_000, processing_time=True), 1),
    ],
    ids=["tumbling", "hopping", "session"],
)
def test_windows_in_processing_time_hold_every_row(window: Any, times: int, parallelism: int) -> None:
    for seed in range(6):
        job = Job("semantics")
        windowed = started(job).key_by("key").window(window).aggregate(rows=count())
        windowed.select("key", "rows").sink(MemorySink()).named("out")
        out = testing.run(job, {"in": EVENTS}, kills=2, first_seed=seed, parallelism=parallelism)["out"]
        found = {key: sum(row.rows for row in out if row.key == key) for key in KEYS}
        assert found == {key: times * len(events) for key, events in BY_KEY.items()}


class Listed(Record):
    key: str
    window_end: Instant
    values: str


JOINED = UserAggregate(
    lambda: [],
    lambda found, value: [*found, value],
    lambda a, b: a + b,
    lambda found: ",".join(map(str, sorted(found))),
)


@both_parallelisms
def test_a_fold_of_the_users_own(parallelism: int) -> None:
    rows = ran(
        lambda events: (
            events.key_by("key")
            .window(tumbling("10s"))
            .aggregate(Listed, values=aggregate_by(JOINED, "value", returns=str))
        ),
        parallelism,
    )
    windows: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
    for event in EVENTS:
        windows[event.key, (event.at // (10 * SECOND) + 1) * 10 * SECOND].append(event.value)
    assert values(rows) == values([Listed(*window, ",".join(map(str, sorted(v)))) for window, v in windows.items()])


class Latest(Record):
    key: str
    rows: int
    sum: int


FINAL = [Latest(key, len(events), sum(event.value for event in events)) for key, events in BY_KEY.items()]


@both_parallelisms
def test_a_table_tells_its_results_at_the_end(parallelism: int) -> None:
    rows = ran(
        lambda events: events.key_by("key").aggregate(Latest, rows=count(), sum=col("value").sum()).at_end(),
        parallelism,
    )
    assert values(rows) == values(FINAL)


@both_parallelisms
def test_the_changes_of_a_table_lead_to_its_results(parallelism: int) -> None:
    for seed in range(4):
        job = Job("semantics")
        table = started(job).key_by("key").aggregate(Latest, rows=count(), sum=col("value").sum())
        table.changes().sink(MemorySink()).named("out")
        out = testing.run(job, {"in": EVENTS}, kills=2, first_seed=seed, parallelism=parallelism)["out"]
        assert values(max((r for r in out if r.key == key), key=lambda r: r.rows) for key in KEYS) == values(FINAL)  # type: ignore[arg-type]
        assert len(values(out)) == len(out), "a change is told once"


def sides(events: Stream[Event]) -> tuple[Stream[Any], Stream[Any]]:
    left = events.filter(col("value") > 0).select("key", "at", left=col("id"))
    right = events.filter(col("value") <= 0).select(other=col("key"), time=col("at"), right=col("id"))
    return left, right


MATCHES = [(a, b) for a in EVENTS for b in EVENTS if a.key == b.key and a.value > 0 >= b.value]


@both_parallelisms
@pytest.mark.parametrize("slide", [10, 5])
def test_a_window_join(slide: int, parallelism: int) -> None:
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
def test_a_join_over_all_of_history(parallelism: int) -> None:
    def body(events: Stream[Event]) -> Stream[Any]:
        left, right = sides(events)
        return left.join(right, on=("key", "other"), within=forever()).select("left", "right")

    assert values(ran(body, parallelism)) == Counter((a.id, b.id) for a, b in MATCHES)


@both_parallelisms
@pytest.mark.parametrize(("lower", "upper"), [(-5, 0), (-2, 7), (3, 9)])
def test_a_join_by_distance_in_time(lower: int, upper: int, parallelism: int) -> None:
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
def test_a_process_in_order_with_timers_and_split_results(parallelism: int) -> None:
    job = Job("semantics")
    numbered, flushed = started(job).key_by("key").process(Bursts, in_order=True).split(Numbered, Flushed)
    numbered.sink(MemorySink()).named("numbered")
    flushed.sink(MemorySink()).named("flushed")
    out = testing.run(job, {"in": EVENTS}, kills=2, seeds=6, parallelism=parallelism)
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
def test_a_ttl_in_order_depends_on_the_rows_alone(parallelism: int) -> None:
    rows = ran(lambda events: events.key_by("key").process(Fading, in_order=True), parallelism)
    assert values(rows) == Counter((e.id, n) for burst in bursts() for n, e in enumerate(burst, 1))


class Alarm(Record):
    key: str
    rows: int


class Alarms(Process[Event, Alarm]):
    """Tells how many rows came since the last alarm, a while after each."""

    key: str = state("")
    rows: int = state(0)
    soon = processing_timer()

    def on_row(self, event: Event, ctx: Context) -> Iterator[Alarm]:
        self.key = event.key
        self.rows += 1
        if self.rows == 4:
            yield self.told()
        elif self.rows == 1:
            self.soon.set(ctx.time.now() + 1_000)

    @soon.fires
    def rung(self, ctx: Context) -> Iterator[Alarm]:
        yield self.told()

    def told(self) -> Alarm:
        alarm = Alarm(self.key, self.rows)
        self.rows = 0
        return alarm


@both_parallelisms
def test_timers_in_processing_time_lose_and_double_nothing(parallelism: int) -> None:
    for seed in range(6):
        job = Job("semantics")
        started(job).key_by("key").process(Alarms).sink(MemorySink()).named("out")
        out = testing.run(job, {"in": EVENTS}, kills=2, first_seed=seed, parallelism=parallelism)["out"]
        for key, events in BY_KEY.items():
            told = sum(row.rows for row in out if row.key == key)
            assert len(events) - 4 < told <= len(events), "only what waits for a timer at the end may be missing"


def fails_for_some(event: Event) -> Pair:
    if event.id % 10 == 3:
        raise ValueError(f"number {event.id}")
    return Pair(event.key, event.value if event.id % 10 != 4 else "text")  # type: ignore[arg-type]


@both_parallelisms
def test_failed_rows_are_caught_each_once(parallelism: int) -> None:
    job = Job("semantics")
    good, failed = started(job).map(fails_for_some).named("picky").catch()
    good.rebalance().sink(MemorySink()).named("good")
    failed.sink(MemorySink()).named("failed")
    out = testing.run(job, {"in": EVENTS}, kills=2, seeds=6, parallelism=parallelism)
    assert values(out["good"]) == values([Pair(e.key, e.value) for e in EVENTS if e.id % 10 not in (3, 4)])
    assert sorted(json.loads(letter.record)["id"] for letter in out["failed"]) == [
        event.id for event in EVENTS if event.id % 10 in (3, 4)
    ]
    assert {letter.operator for letter in out["failed"]} == {"picky"}


class PickyBursts(Bursts):
    """Fails on some rows, and when a burst of one row is over, after it has changed everything for them."""

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
def test_rows_and_timers_that_a_process_fails_on_are_caught_each_once(parallelism: int) -> None:
    job = Job("semantics")
    good, failed = started(job).key_by("key").process(PickyBursts, in_order=True).named("picky").catch()
    numbered, flushed = good.split(Numbered, Flushed)
    numbered.sink(MemorySink()).named("numbered")
    flushed.sink(MemorySink()).named("flushed")
    failed.sink(MemorySink()).named("failed")
    out = testing.run(job, {"in": EVENTS}, kills=2, seeds=6, parallelism=parallelism)
    told, over, lonely = Counter[Any](), Counter[Any](), Counter[Any]()
    open_bursts: dict[str, list[Event]] = defaultdict(list)
    for burst in bursts(left_out=lambda event: event.id % 10 == 3):
        rows, end = open_bursts[burst[0].key], burst[-1].at + 5 * SECOND
        told.update((e.id, n) for n, e in enumerate(burst, len(rows) + 1))
        rows.extend(burst)
        if len(rows) == 1:
            lonely[end] += 1
        else:
            over[end, len(rows) * 10 + len({e.id % 5 for e in rows})] += 1
            rows.clear()
    assert values(out["numbered"]) == told
    assert values(out["flushed"]) == over
    letters = [json.loads(letter.record) for letter in out["failed"]]
    assert Counter(letter["at"] for letter in letters if "timer" in letter) == lonely != Counter()
    assert sorted(row["id"] for row in letters if "timer" not in row) == [e.id for e in EVENTS if e.id % 10 == 3]
    assert {letter.operator for letter in out["failed"]} == {"picky"}


@both_parallelisms
def test_every_row_is_in_its_window_or_late(parallelism: int) -> None:
    """How late a row is depends on when watermarks came, so no two runs need to agree; no run may lose or double."""
    late_rows = 0
    for seed in range(8):
        job = Job("semantics")
        keyed = started(job, out_of_order="0s").key_by("key")
        on_time, late = keyed.window(tumbling("500ms"), lateness="250ms").aggregate(rows=count()).with_late()
        on_time.sink(MemorySink()).named("on-time")
        late.select("id").sink(MemorySink()).named("late")
        out = testing.run(job, {"in": EVENTS}, kills=2, first_seed=seed, parallelism=parallelism)
        latest = {(row.key, row.window_end): row.rows for row in sorted(out["on-time"], key=lambda row: row.rows)}
        missed = [EVENTS[row.id] for row in out["late"]]
        assert len({event.id for event in missed}) == len(missed)
        expected = Counter((event.key, (event.at // HALF + 1) * HALF) for event in EVENTS if event not in missed)
        assert latest == expected
        late_rows += len(missed)
    assert late_rows, "no row was late: the test proves nothing"


class QuietSource(Source):
    """Gives a row, then nothing for two seconds."""

    def __init__(self) -> None:
        self._position = 0

    def seek(self, positions: Mapping[int, int]) -> None:
        self._position = positions.get(0, 0)
        self._until: int | None = None

    def poll(self, now: int) -> Read | Wait | End:
        if self._position == 0:
            self._position = 1
            return self.reread(0, 0, 1)
        self._until = self._until or now + 2 * SECOND
        return Wait(self._until) if now < self._until else End()

    def reread(self, partition: int, start: int, stop: int) -> Read:
        self._position = stop
        row = pa.RecordBatch.from_pylist(
            [{"id": 0, "key": "a", "value": 0, "at": 0, "note": None}], schema=Event.schema()
        )
        return Read(0, start, stop, (row,))


class Quiet(SourceDefinition):
    schemas = (Event.schema(),)
    records = (Event,)

    def create(self, columns: tuple[tuple[str, ...] | None, ...], read_rows: int | None = None) -> Source:
        return ProjectedQuietSource(columns[0])


class ProjectedQuietSource(QuietSource):
    def __init__(self, columns: tuple[str, ...] | None) -> None:
        super().__init__()
        self._columns = columns

    def reread(self, partition: int, start: int, stop: int) -> Read:
        read = super().reread(partition, start, stop)
        (row,) = read.rows
        assert row is not None
        return read if self._columns is None else read._replace(rows=(row.select(list(self._columns)),))


class Stamped(Record):
    window_end: Instant
    rows: int
    seen: Instant


class Counted(Record):
    window_end: Instant
    rows: int


def stamped(row: Counted, ctx: Context) -> Stamped:
    return Stamped(row.window_end, row.rows, ctx.time.now())


@pytest.mark.parametrize("idle", ["200ms", None])
def test_an_idle_source_does_not_hold_windows_back(idle: str | None) -> None:
    for seed in range(3):
        job = Job("semantics")
        quiet = job.source(Quiet(), event_time="at", idle=idle).named("quiet")
        ending = job.source(MemorySource(EVENTS), event_time="at", out_of_order="4s").named("in")
        windows = ending.union(quiet).window(tumbling("10s")).aggregate(Counted, rows=count())
        windows.map(stamped).sink(MemorySink()).named("out")
        out = testing.run(job, {"in": EVENTS}, first_seed=seed)["out"]
        assert sum(row.rows for row in out) == len(EVENTS) + 1
        waited = [row.seen - 1_700_000_000 * SECOND for row in out if row.window_end <= 40 * SECOND]
        assert all((time < SECOND) == (idle is not None) for time in waited)


class Witnessed(Record):
    id: int
    key: str
    dice: float
    time: Instant
    ticket: int


_tickets = itertools.count()


@service
def tickets() -> Iterator[Callable[[int], int]]:
    """Never the same answer twice."""
    yield lambda row: next(_tickets)


def witnessed(event: Event, ctx: Context) -> Witnessed:
    return Witnessed(event.id, event.key, ctx.random.random(), ctx.time.now(), ctx.call(tickets, event.id))


class Through(Process[Witnessed, Witnessed]):
    rows: int = state(0)

    def on_row(self, row: Witnessed, ctx: Context) -> Witnessed:
        self.rows += 1
        return row


@both_parallelisms
def test_two_paths_tell_the_same_of_every_row(parallelism: int) -> None:
    for seed in range(10):
        job = Job("semantics")
        rows = started(job).map(witnessed)
        rows.sink(MemorySink()).named("left")
        rows.key_by("key").process(Through).sink(MemorySink()).named("right")
        out = testing.run(job, {"in": EVENTS}, kills=3, first_seed=seed, parallelism=parallelism)
        assert values(out["left"]) == values(out["right"])
        assert sorted(row.id for row in out["left"]) == [event.id for event in EVENTS]


def test_runs_that_differ_are_told_by_their_differences() -> None:
    job = Job("semantics")
    started(job).filter(col("id") == 0).map(witnessed).sink(MemorySink()).named("out")
    with pytest.raises(AssertionError, match=r"sink 'out' got other rows .* 1 more, such as .* 1 less"):
        testing.run(job, {"in": EVENTS}, kills=1, seeds=3)


def test_kills_come_to_pass_however_short_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    kills = []

    def counted(*given: Any, **named: Any) -> Outcome:
        outcome = simulate_plan(*given, **named)
        kills.append(outcome.kills)
        return outcome

    monkeypatch.setattr(testing, "simulate_plan", counted)
    job = Job("semantics")
    started(job).sink(MemorySink()).named("out")
    testing.run(job, {"in": EVENTS[:5]}, kills=2, seeds=20)
    assert sum(kills) >= 20
