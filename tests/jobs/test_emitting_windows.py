"""Windows whose results are tables: the changes of a job whose tasks are killed add up to what DuckDB gives."""

from __future__ import annotations

from collections import Counter
from typing import Any

import duckdb
import pytest

from clonos_py import (
    Job,
    Stream,
    at_close,
    col,
    count,
    cumulative,
    every,
    forever,
    hopping,
    on_change,
    session,
    testing,
    tumbling,
)
from clonos_py.connectors import MemorySink, MemorySource
from clonos_py.model.errors import GraphError
from tests.jobs.rows import EVENTS, IN_FOURS, SECOND, Body, Event, both_parallelisms, ran, started

FIGURES: dict[str, Any] = {"rows": count(), "total": col("value").sum(), "least": col("value").min()}
NAMES = "rows", "total", "least"
EMITS: dict[str, Any] = {
    "on change": on_change(),
    "at close": at_close(),
    "every": every("3s"),
    "by the clock": every("3ms", processing_time=True),
}
WINDOWS: dict[str, tuple[Any, str]] = {
    "tumbling": (tumbling("10s"), "SELECT *, time // 10 * 10 AS s, s + 10 AS e FROM events"),
    "hopping": (
        hopping("10s", "5s"),
        "SELECT *, unnest([time // 5 * 5 - 5, time // 5 * 5]) AS s, s + 10 AS e FROM events",
    ),
    "cumulative": (
        cumulative("10s", "5s"),
        "SELECT * FROM (SELECT *, time // 10 * 10 AS s, s + unnest([5, 10]) AS e FROM events) WHERE time < e",
    ),
    "session": (
        session("2s"),
        """
        WITH by_key AS (SELECT *, micros - lag(micros) OVER (PARTITION BY key ORDER BY micros) AS apart FROM events),
        numbered AS (SELECT *, count(*) FILTER (apart > 2e6) OVER (PARTITION BY key ORDER BY micros) AS n FROM by_key)
        SELECT *, min(time) OVER (PARTITION BY key, n) AS s, max(time) OVER (PARTITION BY key, n) + 2 AS e FROM numbered
        """,
    ),
}
CASES = [(window, emit) for window in ("hopping", "session") for emit in EMITS]
CASES += [("tumbling", "on change"), ("cumulative", "every")]


def by_duckdb(windows: str, keys: str, events: list[Event] = EVENTS) -> Counter[tuple[Any, ...]]:
    with duckdb.connect(config={"threads": 1}) as database:
        database.execute("CREATE TABLE events (key TEXT, value BIGINT, time BIGINT, micros BIGINT)")
        values = [(e.key, e.value, e.at // SECOND, e.at) for e in events]
        database.executemany("INSERT INTO events VALUES (?, ?, ?, ?)", values)
        asked = f"SELECT {keys}, count(*), sum(value), min(value) FROM ({windows}) GROUP BY {keys}"
        return Counter(database.execute(asked).fetchall())


def table_of(changes: list[Any], *keys: str) -> Counter[tuple[Any, ...]]:
    """The rows of the table after these changes."""
    found: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for row in changes:
        at = tuple(getattr(row, name) for name in keys)
        assert (at in found) == (row.kind in ("update", "delete"))
        if row.kind == "delete":
            del found[at]
            continue
        found[at] = tuple(getattr(row, name) for name in NAMES)
    return Counter((*at, *values) for at, values in found.items())


def in_seconds(rows: Counter[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    return Counter({(key, start // SECOND, end // SECOND, *more): n for (key, start, end, *more), n in rows.items()})


def played(body: Body, emit: Any, parallelism: int) -> list[Any]:
    """The rows of a job that was killed twice. When the clock decides, other runs give other changes."""
    if not getattr(emit, "processing_time", False):
        return ran(body, parallelism)
    job = Job("by-the-clock")
    body(started(job)).sink(MemorySink()).named("out")
    return testing.run(job, {"in": IN_FOURS}, kills=2, parallelism=parallelism)["out"]


@both_parallelisms
@pytest.mark.parametrize(("window", "emit"), CASES)
def test_changes_of_windows_add_up_to_all_rows(window: str, emit: str, parallelism: int) -> None:
    shape, sql = WINDOWS[window]

    def body(events: Stream[Event]) -> Stream[Any]:
        return events.key_by("key").window(shape, emit=EMITS[emit]).aggregate(**FIGURES).changes(kind="kind")

    rows = played(body, EMITS[emit], parallelism)
    assert in_seconds(table_of(rows, "key", "window_start", "window_end")) == by_duckdb(sql, "key, s, e")


@both_parallelisms
@pytest.mark.parametrize("emit", ["every", "by the clock"])
def test_changes_of_all_rows_add_up(emit: str, parallelism: int) -> None:
    def body(events: Stream[Event]) -> Stream[Any]:
        return events.key_by("key").window(forever(), emit=EMITS[emit]).aggregate(**FIGURES).changes(kind="kind")

    assert table_of(played(body, EMITS[emit], parallelism), "key") == by_duckdb("SELECT * FROM events", "key")


def test_rows_come_less_often_than_they_change() -> None:
    def changes(emit: Any) -> int:
        job = Job("changes")
        table = started(job).key_by("key").window(forever(), emit=emit).aggregate(n=count())
        table.changes().sink(MemorySink()).named("out")
        return len(testing.run(job, {"in": IN_FOURS})["out"])

    assert len({event.key for event in EVENTS}) < changes(every("10s")) < changes(on_change())


def test_late_rows_correct_results_within_the_lateness() -> None:
    job = Job("late")
    rows = job.source(MemorySource(EVENTS), event_time="at", out_of_order="0s").named("in")
    windows = rows.key_by("key").window(tumbling("5s"), lateness="1h", emit=at_close()).aggregate(**FIGURES)
    windows.changes(kind="kind").sink(MemorySink()).named("out")
    out = testing.run(job, {"in": IN_FOURS}, kills=1)["out"]
    assert any(row.kind == "update" for row in out), "no row was late: the test proves nothing"
    assert in_seconds(table_of(out, "key", "window_start", "window_end")) == by_duckdb(
        "SELECT *, time // 5 * 5 AS s, s + 5 AS e FROM events", "key, s, e"
    )


@both_parallelisms
def test_a_table_of_windows_feeds_another_table_and_has_final_rows(parallelism: int) -> None:
    def body(events: Stream[Event]) -> Stream[Any]:
        windows = events.key_by("key").window(tumbling("10s"), emit=on_change()).aggregate(**FIGURES).named("windows")
        return windows.key_by("window_start").aggregate(keys=count(), most=col("rows").max()).named("most").at_end()

    sql = WINDOWS["tumbling"][1]
    by_window: dict[int, list[int]] = {}
    for (_, start, _, rows, *_), n in by_duckdb(sql, "key, s, e").items():
        by_window.setdefault(start, []).extend([rows] * n)
    found = {row.window_start // SECOND: (row.keys, row.most) for row in ran(body, parallelism)}
    assert found == {start: (len(rows), max(rows)) for start, rows in by_window.items()}
    final = ran(
        lambda e: e.key_by("key").window(tumbling("10s"), emit=at_close()).aggregate(**FIGURES).at_end(), parallelism
    )
    names = ("key", "window_start", "window_end", *NAMES)
    assert in_seconds(Counter(tuple(getattr(row, name) for name in names) for row in final)) == by_duckdb(
        sql, "key, s, e"
    )


@both_parallelisms
def test_sessions_take_back_what_they_have_given_another_table(parallelism: int) -> None:
    def body(events: Stream[Event]) -> Stream[Any]:
        sessions = events.key_by("key").window(session("2s"), emit=on_change()).aggregate(**FIGURES).named("sessions")
        return sessions.key_by("key").aggregate(sessions=count(), most=col("rows").max()).named("most").at_end()

    of_keys: dict[str, list[int]] = {}
    for (key, _, _, rows, *_), n in by_duckdb(WINDOWS["session"][1], "key, s, e").items():
        of_keys.setdefault(key, []).extend([rows] * n)
    found = {row.key: (row.sessions, row.most) for row in ran(body, parallelism)}
    assert found == {key: (len(rows), max(rows)) for key, rows in of_keys.items()}


def test_sessions_that_grow_are_deleted_so_their_changes_need_a_kind() -> None:
    table = started(Job("kept")).key_by("key").window(session("2s"), emit=on_change()).aggregate(n=count())
    with pytest.raises(GraphError, match="kind="):
        table.changes()


def test_mistakes_are_named() -> None:
    keyed = started(Job("emitting")).key_by("key")
    text: Any = "10s"
    never: Any = forever()
    for write, message in (
        (lambda: keyed.window(tumbling("1s"), emit=text), "emit is '10s': use at_close.., on_change.. or every"),
        (lambda: keyed.window(never), "forever.. never closes: say when results come"),
        (lambda: keyed.window(forever(), emit=at_close()), "forever.. never closes, and no row of it is late"),
        (
            lambda: keyed.window(tumbling("1s", processing_time=True), emit=on_change()),
            "emit= takes tumbling, hopping and",
        ),
        (
            lambda: keyed.window(session("1s", processing_time=True), emit=on_change()),
            "cumulative windows and sessions in event time",
        ),
        (lambda: keyed.window(tumbling("1s"), emit=on_change(), lateness="-1s"), "lateness is '-1s'"),
        (lambda: every("0s"), "period is '0s', it must be more than 0"),
        (
            lambda: (
                keyed.window(tumbling("1s"), emit=on_change())
                .aggregate(n=count())
                .changes()
                .key_by("key")
                .aggregate(n=count())
            ),
            "these rows are changes of the table",
        ),
    ):
        with pytest.raises(GraphError, match=message) as caught:
            write()
        assert "tests/jobs/test_emitting_windows.py:" in str(caught.value)
