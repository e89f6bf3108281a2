"""Joined, filtered and computed tables of jobs whose tasks are killed give what DuckDB gives for the same rows."""

from __future__ import annotations

from collections import Counter
from typing import Any

import duckdb
import pytest

from clonos_py import Job, Stream, Table, coalesce, col, count
from clonos_py.connectors import MemorySource, UpsertMemorySink
from clonos_py.dsl.joining import How, Keys
from clonos_py.runtime.launch import run_job
from clonos_py.settings.resolution import resolve
from tests.jobs.rows import EVENTS, Event, both_parallelisms, ran, values
from tests.often import often

HOWS: list[How] = ["inner", "left", "right", "full", "semi", "anti"]
ONS: dict[str, tuple[Keys, str]] = {
    "one": ("key", "l.key = r.key"),
    "many": (("rows", "others"), "l.rows = r.others"),
}
"""``one``: each left row has at most one match. ``many``: the joined columns change, so that rows move."""

TABLES = """
CREATE TABLE events (id BIGINT, key TEXT, value BIGINT);
CREATE VIEW l AS SELECT key, id % 2 AS half, count(*) AS rows, sum(value) AS total FROM events GROUP BY ALL;
CREATE VIEW r AS SELECT key, count(*) AS others, max(value) AS most FROM events WHERE value < 20 AND key <> 'c'
    GROUP BY key;
"""


def tables(events: Stream[Event]) -> tuple[Table[Any], Table[Any]]:
    halves = events.key_by("key", half=col("id") % 2).aggregate(rows=count(), total=col("value").sum()).named("left")
    some = events.filter((col("value") < 20) & (col("key") != "c"))
    return halves, some.key_by("key").aggregate(others=count(), most=col("value").max()).named("right")


def by_duckdb(query: str) -> Counter[tuple[Any, ...]]:
    with duckdb.connect(config={"threads": 1}) as database:
        database.execute(TABLES)
        rows = [(event.id, event.key, event.value) for event in EVENTS]
        database.executemany("INSERT INTO events VALUES (?, ?, ?)", rows)
        return Counter(database.execute(query).fetchall())


def joined(events: Stream[Event], kind: str, how: How) -> Table[Any]:
    left, right = tables(events)
    on = ONS[kind][0]
    if kind == "many" and how not in ("semi", "anti"):
        right = right.select("others", "most", other="key").named("renamed")
    return left.join(right, on=on, how=how).named("joined")


def columns_of(kind: str, how: How) -> str:
    if how in ("semi", "anti"):
        return "l.key, half, rows, total"
    key = {"right": "r.key", "full": "coalesce(l.key, r.key)"}.get(how, "l.key")
    return (
        f"{key}, half, rows, total, others, most" if kind == "one" else "l.key, half, rows, total, others, most, r.key"
    )


@both_parallelisms
@pytest.mark.parametrize("how", often(HOWS, ["full", "anti"]))
@pytest.mark.parametrize("kind", ONS)
def test_joined_tables_equal_duckdb(kind: str, how: How, parallelism: int) -> None:
    expected = by_duckdb(f"SELECT {columns_of(kind, how)} FROM l {how} JOIN r ON {ONS[kind][1]}")
    assert expected
    assert values(ran(lambda events: joined(events, kind, how).at_end(), parallelism, seeds=1)) == expected


@pytest.mark.parametrize("how", often(HOWS, ["inner", "full"]))
@pytest.mark.parametrize("kind", ONS)
def test_changes_of_a_joined_table_rebuild_it(kind: str, how: How) -> None:
    job = Job("semantics")
    table = joined(job.source(MemorySource(EVENTS, batch_rows=3), event_time="at").named("in"), kind, how)
    sink = UpsertMemorySink(table.keys)
    table.sink(sink)
    run_job(job, resolve({"runtime": "local", "parallelism": 2}))
    found = sink.table()
    assert found is not None
    expected = by_duckdb(f"SELECT {columns_of(kind, how)} FROM l {how} JOIN r ON {ONS[kind][1]}")
    assert Counter(tuple(row.values()) for row in found.to_pylist()) == expected


@both_parallelisms
@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
@pytest.mark.parametrize(("on", "condition"), [("key", "e.key = r.key"), (("id", "others"), "e.id = r.others")])
def test_rows_of_a_stream_that_wait_for_a_table_equal_duckdb(
    on: Keys, condition: str, how: How, parallelism: int
) -> None:
    """Also by a column that changes, so that rows of the table move."""

    def body(events: Stream[Event]) -> Stream[Any]:
        rows = events.select("id", "key") if on == "key" else events.select("id")
        return rows.join(tables(events)[1], on=on, how=how, load_first=True).named("looked-up")

    left, right = ("id, e.key", "others, most") if on == "key" else ("id", "r.key, others, most")
    columns = left if how in ("semi", "anti") else f"{left}, {right}"
    expected = by_duckdb(f"SELECT {columns} FROM events e {how} JOIN r ON {condition}")
    assert expected
    assert values(ran(body, parallelism)) == expected


@both_parallelisms
def test_each_row_of_a_stream_meets_one_version_of_a_row(parallelism: int) -> None:
    """Which of them depends on the order of arrival, but each is one of a row that some events have made."""

    def body(events: Stream[Event]) -> Stream[Any]:
        counted = events.key_by("key").aggregate(so_far=count(), ids=col("id").collect()).named("counted")
        joined = events.select("id", "key").join(counted, on="key", how="left").named("looked-up")
        return joined.select("id", fits=coalesce(col("so_far"), 0) == coalesce(col("ids").list_length(), 0))

    assert values(ran(body, parallelism)) == Counter((event.id, True) for event in EVENTS)


@both_parallelisms
def test_a_joined_table_is_filtered_computed_and_aggregated(parallelism: int) -> None:
    """The rows move between groups, and leave and enter the filter."""

    def body(events: Stream[Event]) -> Stream[Any]:
        table = joined(events, "one", "left").filter(col("total") > -20).named("filtered")
        table = table.with_columns(all=col("rows") + coalesce(col("others"), 0)).named("computed")
        grouped = table.key_by(bucket=col("all") % 3)
        return grouped.aggregate(n=count(), total=col("total").sum()).named("out-table").at_end()

    query = (
        "SELECT (rows + coalesce(others, 0)) % 3, count(*), sum(total) FROM l LEFT JOIN r ON l.key = r.key "
        "WHERE total > -20 GROUP BY 1"
    )
    assert values(ran(body, parallelism)) == by_duckdb(query)


@both_parallelisms
def test_every_aggregate_follows_the_rows_of_a_table(parallelism: int) -> None:
    def body(events: Stream[Event]) -> Stream[Any]:
        grouped = tables(events)[0].key_by(bucket=col("rows") % 3)
        found = grouped.aggregate(low=col("total").min(), high=col("total").max(), keys=col("key").count_distinct())
        return found.named("extremes").at_end()

    query = "SELECT rows % 3, min(total), max(total), count(DISTINCT key) FROM l GROUP BY 1"
    assert values(ran(body, parallelism)) == by_duckdb(query)


def test_a_table_is_read_by_several_verbs() -> None:
    def body(events: Stream[Event]) -> Stream[Any]:
        left, right = tables(events)
        most = right.top(1, by=col("most").desc()).named("most").changes("change").filter(col("change") == "none")
        joined = left.join(right, on="key").aggregate(n=count()).named("joined-rows")
        ends = joined.at_end()
        return ends.union(most.select(n=col("others")))

    assert values(ran(body, 2)) == by_duckdb("SELECT count(*) FROM l JOIN r ON l.key = r.key")


def test_the_first_rows_of_a_filtered_table() -> None:
    def body(events: Stream[Event]) -> Stream[Any]:
        table = tables(events)[0].filter(col("rows") < 5).named("few")
        return table.key_by("half").top(2, by=[col("total").desc(), "key"]).named("best").at_end()

    query = (
        "SELECT key, half, rows, total, row_number() OVER (PARTITION BY half ORDER BY total DESC, key) AS n FROM l "
        "WHERE rows < 5 QUALIFY n <= 2"
    )
    assert values(ran(body, 2)) == by_duckdb(query)


def test_changes_of_computed_rows_replace_each_other() -> None:
    job, sink = Job("semantics"), UpsertMemorySink(("name",))
    events = job.source(MemorySource(EVENTS, batch_rows=3), event_time="at").named("in")
    tables(events)[1].select(name="key", twice=col("most") * 2).sink(sink)
    run_job(job, resolve({"runtime": "local", "parallelism": 2}))
    found = sink.table()
    assert found is not None
    assert Counter(tuple(row.values()) for row in found.to_pylist()) == by_duckdb("SELECT key, most * 2 FROM r")
