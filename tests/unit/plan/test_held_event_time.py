"""Streams without event time that hold windows, joins and timers back are named before the job runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from clonos_py import (
    Context,
    CoProcess,
    Instant,
    Job,
    Process,
    Record,
    Stream,
    Table,
    at_close,
    between,
    count,
    event_timer,
    forever,
    last,
    on_change,
    processing_timer,
    tumbling,
)
from clonos_py.model.windows import Emit
from clonos_py.plan.physical import plan
from tests.unit.dsl.connectors import Bid, Nowhere, Rows


class Both(Record):
    auction: int
    at: Instant


class Plain(CoProcess[Bid, Bid, Both]):
    later = processing_timer()

    def on_left(self, bid: Bid, ctx: Context) -> Iterator[Both]:
        yield Both(bid.auction, bid.at)

    def on_right(self, bid: Bid, ctx: Context) -> None: ...

    @later.fires
    def on_later(self, ctx: Context) -> None: ...


class Timed(Plain):
    due = event_timer()

    @due.fires
    def on_due(self, ctx: Context) -> None: ...


class Due(Process[Bid, Both]):
    due = event_timer()

    def on_row(self, bid: Bid, ctx: Context) -> Iterator[Both]:
        yield Both(bid.auction, bid.at)

    @due.fires
    def on_due(self, ctx: Context) -> None: ...


Build = Callable[[Stream[Any], Stream[Any]], Stream[Any]]
"""Of a stream with event time, and the source "rules"."""


def windows(rows: Stream[Any]) -> Stream[Any]:
    return rows.key_by("auction").window(tumbling("10s")).aggregate(n=count())


def over(rows: Stream[Any]) -> Stream[Any]:
    return rows.key_by("auction").over(last("10s")).aggregate(n=count())


def whole(rows: Stream[Any]) -> Stream[Any]:
    return rows.key_by("auction").window(tumbling("10s")).map_groups(lambda batch: batch, returns=Both)


def emitted(rows: Stream[Any], emit: Emit) -> Table[Any]:
    return rows.key_by("auction").window(tumbling("10s"), emit=emit).aggregate(n=count())


def closing(rows: Stream[Any]) -> Stream[Any]:
    return emitted(rows, at_close()).changes()


def final(rows: Stream[Any]) -> Stream[Any]:
    return emitted(rows, on_change()).at_end()


def changing(rows: Stream[Any]) -> Stream[Any]:
    return emitted(rows, on_change()).changes()


def around(rows: Stream[Any], others: Stream[Any], how: Any = "left") -> Stream[Any]:
    return rows.join(others.select("auction", when="at"), "auction", between("-5s", "5s"), how=how)


def connected(function: type[CoProcess[Any, Any, Any]], **options: Any) -> Build:
    return lambda bids, rules: bids.key_by("auction").connect(rules.key_by("auction")).process(function, **options)


def joined(bids: Stream[Any], rules: Stream[Any]) -> Stream[Any]:
    return bids.join(rules.select("auction", limit="price"), on="auction", within=forever())


def united(bids: Stream[Any], rules: Stream[Any]) -> Stream[Any]:
    return bids.union(rules).key_by("auction").process(Due)


def warnings(build: Build, **rules: Any) -> tuple[str, ...]:
    job = Job("test")
    bids = job.source(Rows(Bid), event_time="at").named("bids")
    build(bids, job.source(Rows(Bid), **rules).named("rules")).sink(Nowhere("out")).named("out")
    return plan(job).warnings


@pytest.mark.parametrize(
    ("build", "waiting"),
    [
        (connected(Timed), "'process' brings .* 'process' waits until 'rules' ends"),
        (lambda bids, rules: windows(connected(Plain)(bids, rules)), "'process' brings .* 'aggregate' waits"),
        (lambda bids, rules: over(connected(Plain)(bids, rules)), "'process' brings .* 'over' waits"),
        (lambda bids, rules: whole(connected(Plain)(bids, rules)), "'process' brings .* 'map_groups' waits"),
        (lambda bids, rules: closing(connected(Plain)(bids, rules)), "'process' brings .* 'aggregate' waits"),
        (lambda bids, rules: final(connected(Plain)(bids, rules)), "'process' brings .* 'aggregate' waits"),
        (lambda bids, rules: around(connected(Plain)(bids, rules), bids), "'process' brings .* 'join' waits"),
        (united, "'union' brings .* 'process' waits"),
    ],
)
def test_a_source_without_event_time_is_named_with_what_waits_for_it(build: Build, waiting: str) -> None:
    (warning,) = warnings(build)
    assert "source 'rules' has no event time" in warning
    assert "give it an event time, such as job.source(..., event_time='at'), or idle='5s'" in warning
    assert re.search(waiting, warning)


@pytest.mark.parametrize(
    ("build", "rules"),
    [
        (connected(Plain), {}),
        (joined, {}),
        (lambda bids, rules: windows(bids).named("a").union(windows(rules.with_event_time("at")).named("b")), {}),
        (lambda bids, rules: changing(connected(Plain)(bids, rules)), {}),
        (lambda bids, rules: around(connected(Plain)(bids, rules), bids, "inner"), {}),
        (connected(Timed), {"event_time": "at"}),
        (connected(Timed), {"idle": "5s"}),
        (lambda bids, rules: windows(bids.union(rules).with_event_time("at")), {"event_time": "at"}),
    ],
)
def test_where_nothing_waits_for_it_there_is_no_warning(build: Build, rules: dict[str, Any]) -> None:
    assert warnings(build, **rules) == ()
