"""Windows that a function assigns, and functions of whole windows, in jobs whose tasks are killed."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from clonos_py import (
    Instant,
    Job,
    Record,
    Stream,
    assign,
    at,
    col,
    count,
    hopping,
    on_change,
    session,
    testing,
    tumbling,
)
from clonos_py.connectors import MemorySink
from clonos_py.model.errors import GraphError, UserCodeError
from tests.jobs.rows import EVENTS, IN_FOURS, SECOND, Event, both_parallelisms, ran, started


class Spread(Record):
    key: str
    window_end: Instant
    rows: int
    between: int
    """The difference of the last and the first value."""


def shifts(rows: Any) -> pa.RecordBatch:
    """Windows of 7 s, shifted by 2 s; rows with a value above 40 are in none."""
    start = pc.add(
        pc.multiply(pc.divide(pc.subtract(rows.column("at"), 2 * SECOND), 7 * SECOND), 7 * SECOND), 2 * SECOND
    )
    start = pc.if_else(pc.greater(rows.column("value"), pa.scalar(40)), None, start)
    return pa.record_batch({"window_start": start, "window_end": pc.add(start, 7 * SECOND)})


def two_each(rows: pl.DataFrame) -> pl.DataFrame:
    """The even second of a row and, as a longer window, its minute."""
    second, minute = pl.col("at") // (2 * SECOND) * 2 * SECOND, pl.col("at") // at("1m") * at("1m")
    return rows.select(
        window_start=pl.concat_list(second, minute), window_end=pl.concat_list(second + 2 * SECOND, minute + at("1m"))
    )


def spread(rows: pl.DataFrame) -> pl.DataFrame:
    values = rows["value"]
    return rows.head(1).select("key", "window_end", rows=pl.lit(rows.height), between=pl.lit(values[-1] - values[0]))


def in_shifts(event: Event) -> list[tuple[int, int]]:
    start = (event.at - 2 * SECOND) // (7 * SECOND) * 7 * SECOND + 2 * SECOND
    return [(start, start + 7 * SECOND)] if event.value <= 40 else []


def in_two(event: Event) -> list[tuple[int, int]]:
    return [(event.at // size * size, event.at // size * size + size) for size in (2 * SECOND, at("1m"))]


def sums(windows: Any) -> Counter[tuple[Any, ...]]:
    found: defaultdict[tuple[Any, ...], list[int]] = defaultdict(list)
    for event in EVENTS:
        for bounds in windows(event):
            found[event.key, *bounds].append(event.value)
    return Counter((*of, len(values), sum(values)) for of, values in found.items())


@both_parallelisms
@pytest.mark.parametrize(("function", "windows"), [(shifts, in_shifts), (two_each, in_two)])
def test_assigned_windows_have_their_rows(function: Any, windows: Any, parallelism: int) -> None:
    def body(events: Stream[Event]) -> Stream[Any]:
        return events.key_by("key").window(assign(function)).aggregate(rows=count(), total=col("value").sum())

    rows = ran(body, parallelism)
    found = Counter((row.key, row.window_start, row.window_end, row.rows, row.total) for row in rows)
    assert found == sums(windows)


def test_results_of_assigned_windows_have_an_event_time_and_may_be_a_table() -> None:
    def body(events: Stream[Event]) -> Stream[Any]:
        shifted = events.key_by("key").window(assign(shifts)).aggregate(rows=count()).named("shifts")
        by_end = shifted.select("rows", end="window_end").with_columns(all=col("rows") * 0)
        return by_end.key_by("all").window(tumbling("1m")).aggregate(rows=col("rows").sum())

    assert sum(row.rows for row in ran(body, 1)) == sum(event.value <= 40 for event in EVENTS) < len(EVENTS)
    changes = ran(
        lambda events: events.key_by("key").window(assign(shifts), emit=on_change(), lateness="1h")
        .aggregate(rows=count(), total=col("value").sum()).changes(), 2,
    )  # fmt: skip
    last = {(row.key, row.window_start, row.window_end): (row.rows, row.total) for row in changes}
    assert Counter((*of, *values) for of, values in last.items()) == sums(in_shifts)


@both_parallelisms
def test_a_function_gets_whole_windows_in_order(parallelism: int) -> None:
    rows = ran(lambda e: e.key_by("key").window(hopping("10s", "5s")).map_groups(spread, returns=Spread), parallelism)
    windows: defaultdict[tuple[str, int], list[Event]] = defaultdict(list)
    for event in sorted(EVENTS, key=lambda event: event.at):
        for start in (event.at // (5 * SECOND) * 5 * SECOND, event.at // (5 * SECOND) * 5 * SECOND - 5 * SECOND):
            windows[event.key, start + 10 * SECOND].append(event)
    assert Counter((row.key, row.window_end, row.rows, row.between) for row in rows) == Counter(
        (key, end, len(events), events[-1].value - events[0].value) for (key, end), events in windows.items()
    )


@both_parallelisms
def test_a_function_gets_whole_sessions_in_order(parallelism: int) -> None:
    rows = ran(lambda e: e.key_by("key").window(session("300ms")).map_groups(spread, returns=Spread), parallelism)
    sessions: list[list[Event]] = []
    for event in sorted(EVENTS, key=lambda event: (event.key, event.at)):
        last = sessions[-1][-1] if sessions else None
        if last is not None and last.key == event.key and event.at <= last.at + 300_000:
            sessions[-1].append(event)
        else:
            sessions.append([event])
    assert Counter((row.key, row.window_end, row.rows, row.between) for row in rows) == Counter(
        (of[0].key, of[-1].at + 300_000, len(of), of[-1].value - of[0].value) for of in sessions
    )
    assert 10 < len(sessions) < len(EVENTS)


def test_mistakes_are_named() -> None:
    keyed = started(Job("own")).key_by("key")
    closed = keyed.window(tumbling("1s")).aggregate(n=count()).key_by("key")
    nothing: Any = "nothing"

    def asking(rows: pa.RecordBatch, ctx: Any) -> pa.RecordBatch:
        return rows

    for write, message in (
        (lambda: assign(nothing), "'nothing' is not a function"),
        (lambda: keyed.window(assign(asking)), "takes rows only, no ctx"),
        (lambda: closed.window(assign(shifts)), "the rows have a column 'window_start' already, of other windows"),
        (
            lambda: keyed.window(session("1s"), lateness="1s").map_groups(spread, returns=Spread),
            "it takes tumbling, hopping, cumulative and session windows in event time, or assign",
        ),
        (
            lambda: closed.window(tumbling("5s")).map_groups(spread, returns=Spread),
            "the rows have a column 'window_start'",
        ),
    ):
        with pytest.raises(GraphError, match=message) as caught:
            write()
        assert "tests/jobs/test_own_windows.py:" in str(caught.value)


def backwards(rows: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch({"window_start": rows.column("at"), "window_end": rows.column("at")})


def one_bound(rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows.select(["at"]).rename_columns(["window_start"])


def fewer(rows: pa.RecordBatch) -> pa.RecordBatch:
    return shifts(rows).slice(1)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (backwards, "the window of row 0 ends at .*, but starts at"),
        (one_bound, "it returned no column 'window_end', but window_start"),
        (fewer, "it returned 3 rows for 4"),
    ],
)
def test_a_function_that_assigns_no_windows_ends_the_job(function: Any, message: str) -> None:
    job = Job("own")
    windows = started(job).key_by("key").window(assign(function)).aggregate(n=count())
    windows.sink(MemorySink()).named("out")
    with pytest.raises(UserCodeError, match=message) as caught:
        testing.run(job, {"in": IN_FOURS})
    assert f"test_own_windows.py:{function.__code__.co_firstlineno}" in str(caught.value)
