"""Lookups of jobs whose tasks are killed: each key is asked for once, and both witnesses have the same answers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from clonos_py import AsyncContext, Context, Job, Process, Record, col, count, service, state, testing, tumbling
from clonos_py.connectors import MemorySink
from clonos_py.dsl.joining import How
from clonos_py.model.errors import GraphError
from tests.jobs.rows import EVENTS, IN_FOURS, KEYS, Event, started, values

MANY = [Event(number, KEYS[number % 7], 0, number) for number in range(120)]
"""So many that snapshots are taken, and tasks restored, before the last row is read."""
_tickets = itertools.count()


class Quote(Record):
    price: int
    ticket: int


class Priced(Record):
    id: int
    key: str
    ticket: int


@service
def tickets() -> Iterator[Callable[[str], int]]:
    """A service that never answers twice with the same value."""
    yield lambda key: next(_tickets)


async def quote(key: str, ctx: AsyncContext) -> Quote | None:
    ticket = await ctx.call(tickets, key)
    return None if key == "b" else Quote(ord(key), ticket)


async def priced(key: str, ctx: AsyncContext) -> Quote | None:
    await ctx.sleep("3ms")
    return None if key == "b" else Quote(ord(key), 0)


class Through(Process[Priced, Priced]):
    rows: int = state(0)

    def on_row(self, row: Priced, ctx: Context) -> Priced:
        self.rows += 1
        return row


@pytest.mark.parametrize("parallelism", [1, 3])
def test_all_rows_of_a_key_have_one_answer_whatever_dies(parallelism: int) -> None:
    for seed in range(2):
        job = Job("lookups")
        rows = started(job).lookup(quote, "key", Priced, cache="1h")
        rows.sink(MemorySink()).named("left")
        rows.key_by("key").process(Through).sink(MemorySink()).named("right")
        out = testing.run(job, {"in": MANY}, kills=3, first_seed=seed, parallelism=parallelism)
        assert values(out["left"]) == values(out["right"])
        assert sorted(row.id for row in out["left"]) == [event.id for event in MANY if event.key != "b"]
        assert len({(row.key, row.ticket) for row in out["left"]}) == len(KEYS) - 1


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
def test_the_kinds_of_a_lookup_whatever_dies(how: How, parallelism: int) -> None:
    job = Job("lookups")
    nulls = started(job).with_columns(key=col("key").null_if("c"))
    nulls.lookup(priced, "key", cache="1s", how=how, rate=500).select("id").sink(MemorySink()).named("out")
    out = testing.run(job, {"in": IN_FOURS}, kills=2, seeds=2, parallelism=parallelism)["out"]
    without = {event.id for event in EVENTS if event.key in "bc"}
    every = {event.id for event in EVENTS}
    expected = {"inner": every - without, "semi": every - without, "left": every, "anti": without}[how]
    assert sorted(row.id for row in out) == sorted(expected)


def test_windows_behind_a_lookup_wait_for_its_rows() -> None:
    def windowed(looked_up: bool) -> Any:
        job = Job("lookups")
        rows: Any = started(job).filter(col("key") != "b")
        rows = rows.lookup(priced, "key", cache="20ms") if looked_up else rows
        rows.key_by("key").window(tumbling("5s")).aggregate(n=count()).sink(MemorySink()).named("out")
        return testing.run(job, {"in": EVENTS}, kills=2, seeds=2, parallelism=2)["out"]

    assert values(windowed(True)) == values(windowed(False))


def test_rows_whose_question_fails_are_dead_letters() -> None:
    async def picky(key: str, ctx: AsyncContext) -> Quote:
        await ctx.sleep("1ms")
        if key == "a":
            raise ValueError("no a")
        return Quote(1, 2)

    job = Job("lookups")
    rows, failed = started(job).lookup(picky, "key", cache="1h").catch()
    rows.sink(MemorySink()).named("out")
    failed.sink(MemorySink()).named("failed")
    out = testing.run(job, {"in": IN_FOURS}, kills=2, seeds=2, parallelism=2)
    assert len(out["failed"]) == sum(event.key == "a" for event in EVENTS)
    assert {letter.error for letter in out["failed"]} == {"ValueError: no a"}
    assert len(out["out"]) + len(out["failed"]) == len(EVENTS)


class Both(Record):
    value: int


def plain(key: str) -> Quote:
    return Quote(1, 2)


async def number(key: int) -> Quote:
    return Quote(1, 2)


async def without_type(key: str):  # type: ignore[no-untyped-def]
    return Quote(1, 2)


async def many(key: str) -> list[Quote]:
    return []


async def other(key: str) -> Both:
    return Both(1)


async def no_key() -> Quote:
    return Quote(1, 2)


@pytest.mark.parametrize(
    ("function", "on", "given", "problem"),
    [
        (quote, "kye", {}, "lookup: on: no column 'kye'; there are id, key, value, at, note"),
        (quote, [], {}, r"on=\[\]: it takes the name of a column, or a list of names"),
        (plain, "key", {}, "plain is no `async def` function that returns an answer; a lookup needs one"),
        ("x", "key", {}, r"'x' is not a function of the key \(key\)"),
        (no_key, "key", {}, r"no_key: it takes the key \(key\) and, if it wants, `ctx`; it has 0 parameters"),
        (quote, ["key", "value"], {}, r"quote: it takes the key \(key, value\) and, if it wants, `ctx`"),
        (number, "key", {}, "number takes key as int64, the stream's column is string"),
        (without_type, "key", {}, "without_type does not say what it returns"),
        (many, "key", {}, "many returns list"),
        (other, "key", {}, "both sides have a column 'value'"),
        (quote, "key", {"cache": "0s"}, "cache='0s': it must be more than 0; without a cache, use map"),
        (quote, "key", {"cache": "soon"}, "'soon'"),
        (quote, "key", {"rate": 0}, "rate=0: it must be a number of calls per second, more than 0"),
        (quote, "key", {"rate": "1"}, "rate='1'"),
        (quote, "key", {"retries": -1}, "retries=-1: it must be a number of tries, at least 0"),
        (quote, "key", {"concurrency": 0}, "concurrency=0"),
        (quote, "key", {"ratio": 1}, "ratio= is not an option of it; the options are"),
        (quote, "key", {"how": "full"}, "how='full': an answer alone is no row of the result"),
        (quote, "key", {"how": "outer"}, "how='outer': a join is one of"),
        (quote, "key", {"how": "left", "into": Priced}, "Priced.ticket is int64, but how='left' gives rows in which"),
    ],
)
def test_mistakes_are_named(function: Any, on: Any, given: dict[str, Any], problem: str) -> None:
    rows: Any = started(Job("lookups"))
    with pytest.raises(GraphError, match=problem):
        rows.lookup(function, on, **{"cache": "1h", **given})


def test_a_lookup_refuses_changes_of_a_table() -> None:

    changes: Any = started(Job("lookups")).key_by("key").aggregate(n=count()).changes()
    with pytest.raises(GraphError, match="these rows are changes of the table"):
        changes.lookup(quote, "key", cache="1h")


def test_both_sides_may_have_a_column_that_into_does_not_name() -> None:
    class Named(Record):
        id: int

    rows = started(Job("lookups")).lookup(other, "key", Named, cache="1h")
    assert rows.schema.names == ["id"]
    assert Event.schema().names != rows.schema.names
