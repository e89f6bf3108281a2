"""Calls with an effect outside are not repeated where another service can say that they were made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from clonos_py import AsyncContext, Context, Job, Record, ServiceError, Stream, service
from clonos_py.connectors import MemorySink
from clonos_py.model.errors import UserCodeError
from clonos_py.testing.given_answers import GivenAnswers
from clonos_py.testing.jobs import run_once
from tests.jobs.rows import EVENTS, IN_FOURS, Event, started

SEEDS = range(12)
EFFECTS: Counter[int] = Counter()
ASKED: list[int] = []


class Receipt(Record):
    id: int
    number: int


@service
def charge() -> Iterator[Callable[[int], int]]:
    """Has an effect each time, and answers how many there were."""

    def charged(order: int) -> int:
        EFFECTS[order] += 1
        return sum(EFFECTS.values())

    yield charged


@service
def receipt() -> Iterator[Callable[[int], int | None]]:
    def found(order: int) -> int | None:
        ASKED.append(order)
        return 1_000 + order if EFFECTS[order] else None

    yield found


@service
def away() -> Iterator[Callable[[int], int | None]]:
    def refused(order: int) -> int | None:
        raise ServiceError("nobody answers")

    yield refused


def plainly(events: Stream[Event]) -> Stream[Receipt]:
    def charged(event: Event, ctx: Context) -> Receipt:
        return Receipt(event.id, ctx.call(charge, event.id))

    return events.map(charged)


def asking(events: Stream[Event]) -> Stream[Receipt]:
    def charged(event: Event, ctx: Context) -> Receipt:
        return Receipt(event.id, ctx.call(charge, event.id, reconcile=receipt))

    return events.map(charged)


def asking_later(events: Stream[Event]) -> Stream[Receipt]:
    async def charged(event: Event, ctx: AsyncContext) -> Receipt:
        return Receipt(event.id, await ctx.call(charge, event.id, reconcile=receipt))

    return events.map(charged, concurrency=3)


def run(body: Callable[[Stream[Event]], Stream[Any]], seed: int, kills: int) -> list[Any]:
    """The rows, with the effects of this run in ``EFFECTS``."""
    EFFECTS.clear()
    ASKED.clear()
    job = Job("charges")
    body(started(job).rebalance()).named("charged").rebalance().sink(MemorySink()).named("out")
    given = GivenAnswers({}, {}, {}, {})
    actions = run_once(job, {"in": IN_FOURS}, seed, 0, 2, {}, None, given).actions if kills else None
    EFFECTS.clear()
    return run_once(job, {"in": IN_FOURS}, seed, kills, 2, {}, actions, given).rows["out"]


@pytest.mark.parametrize("body", [asking, asking_later])
def test_effects_happen_once_whatever_dies(body: Callable[[Stream[Event]], Stream[Receipt]]) -> None:
    reconciled = 0
    for seed in SEEDS:
        rows = run(body, seed, kills=2)
        assert sorted(row.id for row in rows) == sorted(event.id for event in EVENTS)
        assert set(EFFECTS.values()) == {1}, seed
        reconciled += sum(row.number >= 1_000 for row in rows)
    assert reconciled, "an answer was lost and asked for"


def test_without_it_some_are_repeated() -> None:
    assert any(run(plainly, seed, kills=2) and max(EFFECTS.values()) > 1 for seed in SEEDS)


def test_nothing_is_asked_while_nothing_dies() -> None:
    run(asking, 0, kills=0)
    assert not ASKED


def test_a_call_is_not_made_while_it_is_not_known_whether_it_was() -> None:
    def guarded(events: Stream[Event]) -> Stream[Receipt]:
        def charged(event: Event, ctx: Context) -> Receipt:
            try:
                return Receipt(event.id, ctx.call(charge, event.id, reconcile=away))
            except ServiceError:
                return Receipt(event.id, -1)

        return events.map(charged)

    for seed in SEEDS:
        rows = run(guarded, seed, kills=2)
        assert len(rows) == len(EVENTS)
        assert set(EFFECTS.values()) == {1}
        if any(row.number == -1 for row in rows):
            return
    pytest.fail("no replacement has made a call")


def test_what_is_no_service_is_named() -> None:
    def wrong(events: Stream[Event]) -> Stream[Receipt]:
        def charged(event: Event, ctx: Context) -> Receipt:
            return Receipt(event.id, ctx.call(charge, event.id, reconcile=len))  # type: ignore[call-arg]

        return events.map(charged)

    with pytest.raises(UserCodeError, match="charged: reconcile=<built-in function len> is not a function"):
        run(wrong, 0, kills=0)
