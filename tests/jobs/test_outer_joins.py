"""Outer, semi and anti joins of jobs whose tasks are killed give what DuckDB gives for the same rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import pytest

from clonos_py import (
    Instant,
    Job,
    Record,
    Stream,
    as_of,
    between,
    col,
    count,
    forever,
    hopping,
    session,
    tumbling,
    until,
)
from clonos_py.connectors import MemorySource
from clonos_py.dsl.joining import How
from clonos_py.model.errors import GraphError
from tests.jobs.rows import EVENTS, Event, both_parallelisms, ran, values
from tests.often import often

LEFT = [event for event in EVENTS if event.value > 0]
RIGHT = [event for event in EVENTS if event.value <= 0 and event.key != "c"]
HOWS: list[How] = ["inner", "left", "right", "full", "semi", "anti"]
PAIRS = ("inner", "left", "right", "full")


def sides(events: Stream[Event]) -> tuple[Stream[Any], Stream[Any]]:
    left = events.filter(col("value") > 0).select("key", "at", left=col("id"), until=col("at") + 4_000_000)
    right = events.filter((col("value") <= 0) & (col("key") != "c"))
    return left, right.select(other=col("key"), time=col("at"), right=col("id"))


@dataclass(frozen=True)
class Case:
    """A kind of match, and its condition for pairs of rows ``l`` and ``r`` with equal keys."""

    within: Any
    sql: str
    sides: tuple[str, str] = ("l", "r")


_WINDOWED = "(SELECT *, unnest(range(time // 10_000_000 - 1, time // 10_000_000 + 1)) AS slot FROM {})"
_SESSIONS = """
    (SELECT *, sum(begins) OVER (PARTITION BY key ORDER BY time RANGE UNBOUNDED PRECEDING) AS slot FROM (
        SELECT *, coalesce((time - lag(time) OVER (PARTITION BY key ORDER BY time) > 2_000_000)::INT, 0) AS begins
        FROM (SELECT *, 'l' AS side FROM l UNION ALL SELECT *, 'r' FROM r)
    ))"""
CASES = {
    "session": Case(
        session("2s"),
        "l.slot = r.slot",
        (f"(FROM {_SESSIONS} WHERE side = 'l') l", f"(FROM {_SESSIONS} WHERE side = 'r') r"),
    ),
    "between": Case(between("-2s", "3s"), "r.time - l.time BETWEEN -2_000_000 AND 3_000_000"),
    "until": Case(until("until"), "r.time BETWEEN l.time AND l.time + 4_000_000"),
    "ttl": Case(forever(ttl="3s"), "r.time - l.time BETWEEN -3_000_000 AND 3_000_000"),
    "tumbling": Case(tumbling("10s"), "l.time // 10_000_000 = r.time // 10_000_000"),
    "hopping": Case(
        hopping("20s", "10s"), "l.slot = r.slot", (f"{_WINDOWED.format('l')} l", f"{_WINDOWED.format('r')} r")
    ),
}


def by_duckdb(case: Case, how: How, columns: str = "l.id, r.id", more: str = "") -> Counter[tuple[Any, ...]]:
    names = columns if how in PAIRS else "l.id"
    with duckdb.connect(config={"threads": 1}) as database:
        for name, rows in (("l", LEFT), ("r", RIGHT)):
            database.execute(f"CREATE TABLE {name} (id BIGINT, key TEXT, time BIGINT)")
            database.executemany(f"INSERT INTO {name} VALUES (?, ?, ?)", [(row.id, row.key, row.at) for row in rows])
        left, right = case.sides
        joined = f"FROM {left} {how} JOIN {right} ON l.key = r.key AND {case.sql}"
        return Counter(database.execute(f"SELECT {names} {joined} {more}").fetchall())


@both_parallelisms
@pytest.mark.parametrize("how", often(HOWS, ["full", "anti"]))
@pytest.mark.parametrize("kind", CASES)
def test_joins_equal_duckdb(kind: str, how: How, parallelism: int) -> None:
    def body(events: Stream[Event]) -> Stream[Any]:
        left, right = sides(events)
        joined = left.join(right, on=("key", "other"), within=CASES[kind].within, how=how)
        return joined.select(*(("left", "right") if how in PAIRS else ("left",)))

    expected = by_duckdb(CASES[kind], how)
    assert len(expected) > 3
    assert values(ran(body, parallelism, seeds=1)) == expected


@pytest.mark.parametrize("how", often(HOWS, ["left", "full"]))
@pytest.mark.parametrize(("column", "null"), [("left", True), ("left", False), ("right", True), ("right", False)])
def test_a_filter_behind_a_join_is_no_filter_before_it(how: How, column: str, null: bool) -> None:
    if how not in PAIRS and column == "right":
        return

    def body(events: Stream[Event]) -> Stream[Any]:
        left, right = sides(events)
        joined = left.join(right, on=("key", "other"), within=CASES["between"].within, how=how)
        kept = joined.filter(col(column).is_null() if null else col(column) % 2 == 0)
        return kept.select(*(("left", "right") if how in PAIRS else ("left",)))

    condition = f"{column[0]}.id IS NULL" if null else f"{column[0]}.id % 2 = 0"
    assert values(ran(body, 2, seeds=1)) == by_duckdb(CASES["between"], how, more=f"WHERE {condition}")


@pytest.mark.parametrize("key", ["key", "other"])
@pytest.mark.parametrize("how", PAIRS)
def test_rows_without_a_match_are_brought_together_by_a_key_that_is_null(how: How, key: str) -> None:
    def body(events: Stream[Event]) -> Any:
        left, right = sides(events)
        joined = left.join(right, on=("key", "other"), within=CASES["between"].within, how=how)
        return joined.key_by(key).aggregate(rows=count()).at_end()

    side = {"key": "l", "other": "r"}[key]
    expected = by_duckdb(CASES["between"], how, f"{side}.key, count(*)", f"GROUP BY {side}.key")
    assert values(ran(body, 2, seeds=1)) == expected


@pytest.mark.parametrize("how", PAIRS)
def test_a_key_of_the_same_name_is_that_of_the_row_that_is_there(how: How) -> None:
    def body(events: Stream[Event]) -> Stream[Any]:
        left, right = sides(events)
        right = right.select("time", "right", key=col("other"))
        return left.join(right, on="key", within=CASES["between"].within, how=how).select("key", "left", "right")

    expected = by_duckdb(CASES["between"], how, "coalesce(l.key, r.key), l.id, r.id")
    assert values(ran(body, 2, seeds=1)) == expected


@both_parallelisms
@pytest.mark.parametrize("how", HOWS[1:])
def test_joins_as_of_give_rows_without_a_version_as_asked(how: How, parallelism: int) -> None:
    def body(events: Stream[Event]) -> Stream[Any]:
        left, right = sides(events)
        joined = left.join(right, on=("key", "other"), within=as_of(oldest="3s"), how=how)
        return joined.select(*(("left", "right") if how in PAIRS else ("left",)))

    found: list[tuple[int, int | None]] = []
    for row in LEFT:
        before = [r for r in RIGHT if r.key == row.key and row.at - 3_000_000 <= r.at <= row.at]
        found.append((row.id, max(before, key=lambda r: (r.at, r.id)).id if before else None))
    used = {right for _, right in found}
    unused = [(None, row.id) for row in RIGHT if row.id not in used]
    expected: dict[str, list[tuple[int | None, ...]]] = {
        "left": [*found],
        "right": [*(pair for pair in found if pair[1] is not None), *unused],
        "full": [*found, *unused],
        "semi": [(left,) for left, right in found if right is not None],
        "anti": [(left,) for left, right in found if right is None],
    }
    assert values(ran(body, parallelism, seeds=1)) == Counter(expected[how])


def test_a_window_behind_a_left_join_closes_after_the_rows_that_may_still_come() -> None:
    def body(events: Stream[Event]) -> Stream[Any]:
        left, right = sides(events)
        joined = left.join(right, on=("key", "other"), within=CASES["between"].within, how="left")
        counted = joined.key_by("key").window(tumbling("5s")).aggregate(rows=count())
        return counted.select("key", "rows", start=col("window_start"))

    slot = "l.time // 5_000_000"
    expected = by_duckdb(CASES["between"], "left", f"l.key, count(*), {slot} * 5_000_000", f"GROUP BY l.key, {slot}")
    assert values(ran(body, 2)) == expected


class Sides(Record):
    key: int
    at: Instant


class Wide(Record):
    key: float
    at: Instant


def joining(how: Any, within: Any, into: Any = None, records: Sequence[type[Record]] = (Sides, Sides)) -> None:
    job = Job("refused")
    left, right = (job.source(MemorySource([], schema=record), event_time="at") for record in records)
    other = right.select("key", time=col("at"))
    left.join(other, on="key", within=within, into=into, how=how)


class Strict(Record):
    at: Instant
    time: Instant


@pytest.mark.parametrize(
    ("how", "within", "into", "problem"),
    [
        (
            "outer",
            between("0s", "1s"),
            None,
            "how='outer': a join is one of 'inner', 'left', 'right', 'full', 'semi'",
        ),
        ("left", forever(), None, "with forever() a match may always come, so that no row is ever without one; give"),
        ("anti", forever(), None, "give it a ttl, or take how='inner' or 'semi'"),
        (
            "left",
            between("0s", "1s"),
            Strict,
            "Strict.time is int64, but how='left' gives rows in which it is null",
        ),
        ("semi", between("0s", "1s"), Strict, "Strict.time: nothing of that name; there are at"),
    ],
)
def test_a_join_that_cannot_be_is_refused_in_one_line(how: str, within: Any, into: Any, problem: str) -> None:
    with pytest.raises(GraphError) as refused:
        joining(how, within, into)
    assert problem in str(refused.value)


def test_the_side_input_gives_no_rows_of_its_own() -> None:
    job = Job("refused")
    left = job.source(MemorySource([], schema=Sides), event_time="at")
    with pytest.raises(GraphError, match="each task reads the side input, so no row of it is in the result alone"):
        left.enrich(MemorySource([], schema=Wide), on="key", how="full")
