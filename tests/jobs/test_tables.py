"""Updating results while tasks are killed: their final rows, and the rows of a sink that takes updates."""

from __future__ import annotations

from collections import Counter
from typing import Any

from clonos_py import Instant, Job, Record, Stream, Table, as_of, col, count, hopping, testing, until
from clonos_py.connectors import MemorySink, MemorySource, UpsertMemorySink
from clonos_py.runtime.launch import run_job
from clonos_py.settings.resolution import resolve
from tests.jobs.rows import (
    BY_KEY,
    EVENTS,
    SECOND,
    SEEDS,
    Event,
    both_parallelisms,
    ran,
    started,
    starts_of_windows,
    values,
)


class Best(Record):
    key: str
    value: int
    id: int
    rank_number: int


class Named(Record):
    id: int
    name: str


class Name(Record):
    key: str
    name: str


def best_three(events: Stream[Event]) -> Table[Best]:
    return events.key_by("key").top(3, by=[col("value").desc(), "id"], into=Best)


def expected_best() -> list[Best]:
    return [
        Best(key, event.value, event.id, rank)
        for key, events in BY_KEY.items()
        for rank, event in enumerate(sorted(events, key=lambda event: (-event.value, event.id))[:3], 1)
    ]


@both_parallelisms
def test_the_first_rows_of_each_key_equal_plain_python(parallelism: int) -> None:
    assert values(ran(lambda events: best_three(events).at_end(), parallelism)) == values(expected_best())


@both_parallelisms
def test_the_first_of_all_rows_equal_plain_python(parallelism: int) -> None:
    best = sorted(EVENTS, key=lambda event: (-event.value, event.id))[:4]
    expected = [Best(event.key, event.value, event.id, rank) for rank, event in enumerate(best, 1)]

    def body(events: Stream[Event]) -> Stream[Best]:
        return events.top(4, by=[col("value").desc(), "id"], into=Best).at_end()

    assert values(ran(body, parallelism)) == values(expected)


@both_parallelisms
def test_a_sink_that_takes_updates_shows_the_first_rows(parallelism: int) -> None:
    job, sink = Job("semantics"), UpsertMemorySink(("key", "rank_number"))
    best_three(started(job)).sink(sink)
    run_job(job, resolve({"runtime": "local", "parallelism": parallelism}))
    assert values(sink.rows(Best)) == values(expected_best())


@both_parallelisms
def test_an_aggregate_of_an_aggregate_follows_its_changes(parallelism: int) -> None:
    def body(events: Stream[Event]) -> Stream[Any]:
        most = events.key_by("key", half=col("id") % 2).aggregate(most=col("value").max()).named("most")
        return most.key_by("half").aggregate(n=count(), total=col("most").sum()).named("total").at_end()

    most: dict[tuple[str, int], int] = {}
    for event in EVENTS:
        place = event.key, event.id % 2
        most[place] = max(most.get(place, event.value), event.value)
    expected = Counter((half, sum(h == half for _, h in most), sum(v for (_, h), v in most.items() if h == half))
                     for half in (0, 1))  # fmt: skip
    assert values(ran(body, parallelism)) == expected


class Counted(Record):
    """The number of rows by key and value."""

    key: str
    value: int
    rows: int


@both_parallelisms
def test_rows_of_keys_that_have_expired_leave_a_table_and_those_made_of_it(parallelism: int) -> None:
    """The rows of an hour later come after all others. Keys with none then are gone, and count no more."""
    later = [Event(99, "a", 7, EVENTS[-1].at + 3600 * SECOND)]
    job = Job("expiring")
    events = job.source(MemorySource(EVENTS), event_time="at", out_of_order="4s").named("in")
    totals = events.key_by("key").aggregate(n=count(), total=col("value").sum()).ttl("10m").named("totals")
    totals.aggregate(keys=count(), n=col("n").sum(), total=col("total").sum()).named("all").at_end().sink(
        MemorySink()
    ).named("sums")
    latest = events.key_by("key").top(1, by=col("at").desc()).ttl("10m").named("latest")
    latest.select("key", "id").at_end().sink(MemorySink()).named("newest")
    found = testing.run(job, {"in": [EVENTS[:30], EVENTS[30:], later]}, kills=2, seeds=SEEDS, parallelism=parallelism)
    assert values(found["sums"]) == Counter({(1, 1, 7): 1})
    assert values(found["newest"]) == Counter({("a", 99): 1})


def counted(events: Stream[Event], different: int = 5) -> Table[Counted]:
    values_of_keys = events.with_columns(value=col("value") % different).key_by("key", "value")
    return values_of_keys.aggregate(Counted, rows=count()).named("counted")


def expected_counted(different: int = 5) -> Counter[tuple[str, int]]:
    return Counter((event.key, event.value % different) for event in EVENTS)


@both_parallelisms
def test_the_first_of_running_totals_equal_plain_python(parallelism: int) -> None:
    def body(events: Stream[Event]) -> Stream[Any]:
        return counted(events).key_by("key").top(2, by=col("rows").desc()).named("top").at_end()

    rows = sorted(expected_counted().items(), key=lambda row: (-row[1], row[0]))
    by_key = {key: [(value, rows) for (other, value), rows in rows if other == key] for key, _ in dict(rows)}
    expected = [(key, *row, rank) for key, rows in by_key.items() for rank, row in enumerate(rows[:2], 1)]
    assert values(ran(body, parallelism)) == Counter(expected)


@both_parallelisms
def test_the_first_of_all_running_totals_equal_plain_python(parallelism: int) -> None:
    def body(events: Stream[Event]) -> Stream[Any]:
        return counted(events).top(3, by=[(col("rows") * -1).asc(), "value"]).named("top").at_end()

    rows = sorted(expected_counted().items(), key=lambda row: (-row[1], row[0][1], row[0][0]))
    assert values(ran(body, parallelism)) == Counter((*row[0], row[1], rank) for rank, row in enumerate(rows[:3], 1))


@both_parallelisms
def test_rows_move_between_the_groups_of_a_top_n(parallelism: int) -> None:
    """Groups by number of rows: each new row moves its key and value to the next group."""
    job, sink = Job("semantics"), UpsertMemorySink(("rows", "rank_number"))
    events = job.source(MemorySource(EVENTS, batch_rows=1)).named("in")
    counted(events, 2).key_by("rows").top(2, by=["key", "value"]).named("top").sink(sink)
    run_job(job, resolve({"runtime": "local", "parallelism": parallelism}))
    groups: dict[int, list[tuple[str, int]]] = {}
    for place, rows in sorted(expected_counted(2).items()):
        groups.setdefault(rows, []).append(place)
    expected = [(*place, rows, rank) for rows, all_ in groups.items() for rank, place in enumerate(all_[:2], 1)]
    assert len(groups) < max(groups), "the test shows nothing: no group lost all its rows"
    table = sink.table()
    assert table is not None
    assert sorted(tuple(row.values()) for row in table.to_pylist()) == sorted(expected)


@both_parallelisms
def test_an_aggregate_over_changing_keys_follows_its_rows(parallelism: int) -> None:
    """The number of keys and values by number of rows, and the sum of these values."""

    def body(events: Stream[Event]) -> Stream[Any]:
        per = counted(events).key_by("rows").aggregate(n=count(), total=col("value").sum()).named("frequencies")
        return per.at_end()

    found: dict[int, list[int]] = {}
    for (_, value), rows in expected_counted().items():
        found.setdefault(rows, []).append(value)
    assert values(ran(body, parallelism)) == Counter((rows, len(all_), sum(all_)) for rows, all_ in found.items())


@both_parallelisms
def test_a_top_n_of_a_changing_top_n_equals_plain_python(parallelism: int) -> None:
    def body(events: Stream[Event]) -> Stream[Any]:
        by_value = counted(events).key_by("value").top(2, by=[col("rows").desc()]).named("by-value")
        return by_value.key_by("key").top(1, by=["rows", "value", "rank_number"], rank="place").named("last").at_end()

    per_value: dict[int, list[tuple[int, str]]] = {}
    for (key, value), rows in expected_counted().items():
        per_value.setdefault(value, []).append((-rows, key))
    chosen = [
        (key, -rows, value, rank)
        for value, all_ in per_value.items()
        for rank, (rows, key) in enumerate(sorted(all_)[:2], 1)
    ]
    expected = {key: min(row[1:] for row in chosen if row[0] == key) for key, *_ in chosen}
    assert values(ran(body, parallelism)) == Counter(
        (key, value, rows, rank) for key, (rows, value, rank) in expected.items()
    )


@both_parallelisms
def test_distinct_and_filtered_counts_equal_plain_python(parallelism: int) -> None:
    def body(events: Stream[Event]) -> Stream[Any]:
        positive = col("value") > 0
        return events.key_by("key").aggregate(
            values=col("value").count_distinct(), positive=col("value").count_distinct().where(positive),
            rows=count().where(positive), notes=col("note").count_distinct(),
        ).at_end()  # fmt: skip

    expected = Counter(
        (
            key, len({e.value for e in events}), len({e.value for e in events if e.value > 0}),
            sum(e.value > 0 for e in events), len({e.note for e in events if e.note is not None}),
        )
        for key, events in BY_KEY.items()
    )  # fmt: skip
    assert values(ran(body, parallelism)) == expected


class InWindow(Record):
    key: str
    id: int
    window_start: Instant
    rank_number: int


@both_parallelisms
def test_the_first_rows_of_each_key_and_window_equal_plain_python(parallelism: int) -> None:
    def body(events: Stream[Event]) -> Stream[InWindow]:
        windows = events.key_by("key").window(hopping("20s", "10s"))
        return windows.top(2, by=[col("value").desc(), "id"], into=InWindow)

    size, slide = 20 * SECOND, 10 * SECOND
    expected = [
        InWindow(key, event.id, start, rank)
        for key, events in BY_KEY.items()
        for start in {start for event in events for start in starts_of_windows(event, size, slide)}
        for rank, event in enumerate(
            sorted((e for e in events if start <= e.at < start + size), key=lambda e: (-e.value, e.id))[:2], 1
        )
    ]
    assert values(ran(body, parallelism)) == values(expected)


@both_parallelisms
def test_a_bounded_side_input_is_joined_with_every_row(parallelism: int) -> None:
    names = MemorySource([Name(key, f"{key}{number}") for key in "abc" for number in (1, 2)], partitions=3)

    def body(events: Stream[Event]) -> Stream[Named]:
        return events.rebalance().enrich(names, on="key", into=Named)

    expected = [Named(event.id, f"{event.key}{number}") for event in EVENTS if event.key in "abc" for number in (1, 2)]
    assert values(ran(body, parallelism)) == values(expected)


class Pair(Record):
    first: int
    second: int


class Lasting(Record):
    first: int
    key: str
    at: Instant
    end: Instant


@both_parallelisms
def test_a_join_while_a_row_lasts_equals_plain_python(parallelism: int) -> None:
    def body(events: Stream[Event]) -> Stream[Pair]:
        lasting = events.select(Lasting, first=col("id"), end=col("at") + (col("id") % 7) * SECOND)
        return lasting.join(events.select("key", "at", second=col("id")), on="key", within=until("end"), into=Pair)

    expected = [
        Pair(a.id, b.id)
        for events in BY_KEY.values()
        for a in events
        for b in events
        if a.at <= b.at <= a.at + a.id % 7 * SECOND
    ]
    assert values(ran(body, parallelism)) == values(expected)


@both_parallelisms
def test_a_join_as_of_equals_plain_python(parallelism: int) -> None:
    def body(events: Stream[Event]) -> Stream[Pair]:
        versions = events.filter(col("id") % 3 == 0).select("key", "at", second=col("id"))
        return events.select("key", "at", first=col("id")).join(versions, on="key", within=as_of(), into=Pair)

    expected = [
        Pair(event.id, max(held, key=lambda version: (version.at, version.id)).id)
        for events in BY_KEY.values()
        for event in events
        if (held := [version for version in events if version.id % 3 == 0 and version.at <= event.at])
    ]
    assert values(ran(body, parallelism)) == values(expected)
