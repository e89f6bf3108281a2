"""Datetimes from the source to the sink, and event time that is assigned behind the source, while tasks are killed."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from clonos_py import (
    Context,
    Instant,
    Job,
    Process,
    Record,
    Stream,
    between,
    col,
    count,
    event_timer,
    state,
    testing,
    tumbling,
    until,
)
from clonos_py.connectors import MemorySink, MemorySource
from clonos_py.task.partition_times import PartitionTimes
from tests.jobs.rows import SECOND, both_parallelisms
from tests.jobs.test_idle_sources import Counted, InHalves

SEEDS = 3
START = datetime(2026, 1, 31, tzinfo=UTC)


def moment(second: float) -> datetime:
    return START + timedelta(seconds=second)


class Line(Record):
    id: int
    text: str


class Window(Record):
    window_start: datetime
    rows: int


def line(id_: int, second: int) -> Line:
    return Line(id_, moment(second).strftime("%d/%m/%Y %H:%M:%S"))


def timed(lines: Stream[Line], delay: str = "0s") -> Stream[Any]:
    read = lines.with_columns(at=col("text").strptime("%d/%m/%Y %H:%M:%S"))
    return read.with_event_time("at", delay=delay)


SECONDS = [0, 3, 1, 5, 12, 9, 11, 30, 2, 40]
"""With a delay of two seconds, 9 and 2 are late in windows of ten."""


@both_parallelisms
def test_text_becomes_event_time_after_the_source(parallelism: int) -> None:
    job = Job("timed")
    lines = job.source(MemorySource([line(0, 0)])).named("lines")
    windows = timed(lines, "2s").key_by("id").window(tumbling("10s")).aggregate(Window, rows=count())
    windows.sink(MemorySink()).named("windows")
    given = [line(1, second) for second in SECONDS]
    out = testing.run(job, {"lines": given}, kills=2, seeds=SEEDS, parallelism=parallelism)
    assert out["windows"] == [
        Window(moment(0), 4), Window(moment(10), 2), Window(moment(30), 1), Window(moment(40), 1)
    ]  # fmt: skip


def skewed() -> list[Line]:
    """Dealt to three partitions, each an hour behind the one before."""
    return [line(n % 3, 7_200 - 3_600 * (n % 3) + n // 3 * 2) for n in range(45)]


def in_hours(job: Job, lines: Stream[Line]) -> None:
    windows = timed(lines).window(tumbling("10s")).aggregate(Window, rows=count())
    windows.sink(MemorySink()).named("windows")


def rows_counted(parallelism: int, kills: int, seeds: int) -> Counter[datetime]:
    job = Job("skewed")
    in_hours(job, job.source(MemorySource(skewed(), partitions=3, batch_rows=2)).named("lines"))
    out = testing.run(job, {}, kills=kills, seeds=seeds, parallelism=parallelism)
    return Counter({window.window_start: window.rows for window in out["windows"]})


@both_parallelisms
def test_no_row_is_late_because_another_partition_is_ahead(parallelism: int) -> None:
    expected = Counter({moment(3_600 * hour + 10 * step): 5 for hour in range(3) for step in range(3)})
    assert rows_counted(parallelism, kills=2, seeds=SEEDS) == expected


def test_rows_would_be_late_if_the_partition_ahead_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    def foremost(self: PartitionTimes, active: Any) -> int:
        return max(self.all.values(), default=-(2**63))

    monkeypatch.setattr(PartitionTimes, "watermark", foremost)
    assert rows_counted(1, kills=0, seeds=1).total() < 45


def some_late() -> list[Line]:
    """Dealt to two partitions in turn. Of four rows the last one is late, by the rows that both partitions gave
    before."""
    return [line(1, 8 * (n // 4) + (0, 6, 7, 3)[n % 4]) for n in range(100)]


def test_the_same_rows_are_late_whenever_tasks_are_killed() -> None:
    """The times of each partition are in the snapshot: otherwise a recovery would count late rows differently."""
    job = Job("late")
    lines = job.source(MemorySource(some_late(), partitions=2, batch_rows=1)).named("lines")
    windows = timed(lines).key_by("id").window(tumbling("1s")).aggregate(Window, rows=count())
    windows.sink(MemorySink()).named("windows")
    out = testing.run(job, {}, kills=2, seeds=SEEDS)
    assert sum(window.rows for window in out["windows"]) == 75


@pytest.mark.parametrize("kills", [0, 2])
def test_idle_partitions_do_not_hold_assigned_event_time_back(kills: int) -> None:
    job = Job("halves")
    events = job.source(InHalves()).named("in").with_event_time("at", idle="200ms")
    events.window(tumbling("1s")).aggregate(Counted, rows=count()).sink(MemorySink()).named("out")
    out = testing.run(job, {}, kills=kills, seeds=3)["out"]
    assert [(row.window_end // SECOND, row.rows) for row in sorted(out, key=lambda row: row.window_end)] == [
        (second, 1) for second in range(1, 8)
    ]


def test_unions_and_rebalances_get_event_time_at_their_sources() -> None:
    job = Job("united")
    first = job.source(MemorySource([line(0, 0)])).named("first")
    second = job.source(MemorySource([line(0, 0)])).named("second")
    united = first.map(with_time).union(second.map(with_time)).rebalance().with_event_time("at")
    united.window(tumbling("10s")).aggregate(Window, rows=count()).sink(MemorySink()).named("windows")
    given = {"first": [line(1, s) for s in range(0, 40, 2)], "second": [line(2, s) for s in range(3_600, 3_640)]}
    out = testing.run(job, given, kills=2, seeds=SEEDS, parallelism=2)
    assert {window.window_start: window.rows for window in out["windows"]} == {
        moment(hour + 10 * step): rows for hour, rows in ((0, 5), (3_600, 10)) for step in range(4)
    }


class Timed(Record):
    id: int
    at: datetime


def with_time(row: Line) -> Timed:
    return Timed(row.id, datetime.strptime(row.text, "%d/%m/%Y %H:%M:%S").replace(tzinfo=UTC))


# ---- datetimes in every operator


class Auction(Record):
    id: int
    at: datetime
    expires: datetime


class Bid(Record):
    auction: int
    at: datetime
    price: int


class Sold(Record):
    id: int
    expires: datetime
    price: int


class Closed(Record):
    id: int
    at: datetime


class Closing(Process[Auction, Closed]):
    """Emits the end of an auction, by its timer."""

    expires: datetime = state(START)
    end = event_timer()

    def on_row(self, auction: Auction, ctx: Context) -> None:
        self.expires = auction.expires
        self.end.set(auction.expires)

    @end.fires
    def on_end(self, ctx: Context) -> Iterator[Closed]:
        yield Closed(ctx.event_time // SECOND, self.expires)


def later(bid: Bid) -> Bid:
    return Bid(bid.auction, bid.at + timedelta(seconds=1), bid.price)


AUCTIONS = [Auction(n, moment(10 * n), moment(10 * n + 15)) for n in range(6)]
BIDS = [Bid(n % 6, moment(n), n) for n in range(0, 70, 3)]


def test_joins_windows_and_timers_accept_datetimes() -> None:
    job = Job("auctions")
    auctions = job.source(MemorySource(AUCTIONS), event_time="at").named("auctions")
    bids = job.source(MemorySource(BIDS), event_time="at").named("bids").map(later).named("later")
    sold = auctions.join(
        bids.select("auction", "price", bid_at="at"), on=("id", "auction"), within=until("expires"), into=Sold
    )
    sold.named("lasting").sink(MemorySink()).named("sold")
    near = auctions.join(
        bids.select("auction", "price", bid_at="at"), on=("id", "auction"), within=between("-3s", "3s")
    )
    near.named("near").sink(MemorySink()).named("close")
    auctions.key_by("id").process(Closing).named("closing").sink(MemorySink()).named("closed")
    windows = (
        bids.key_by("auction").window(tumbling("20s")).aggregate(rows=count(), last=col("at").max()).named("windows")
    )
    windows.window(tumbling("20s")).aggregate(Window, rows=col("rows").sum()).named("all").sink(MemorySink()).named(
        "rows"
    )
    top = bids.key_by("at").top(1, by=col("price").desc()).named("by-time")
    top.at_end().sink(MemorySink()).named("top")
    out = testing.run(job, {"auctions": AUCTIONS, "bids": BIDS}, kills=2, seeds=SEEDS, parallelism=2)

    after = [Bid(bid.auction, bid.at + timedelta(seconds=1), bid.price) for bid in BIDS]
    pairs = [(a, b) for a, b in itertools.product(AUCTIONS, after) if a.id == b.auction]
    lasting = [Sold(a.id, a.expires, b.price) for a, b in pairs if a.at <= b.at <= a.expires]
    assert Counter(out["sold"]) == Counter(lasting)
    assert len(lasting) > 1
    assert len(out["close"]) == sum(abs(a.at - b.at) <= timedelta(seconds=3) for a, b in pairs)
    assert Counter(out["closed"]) == Counter(Closed(int(a.expires.timestamp()), a.expires) for a in AUCTIONS)
    counted = Counter(moment(20 * ((bid.at - START) // timedelta(seconds=20))) for bid in after)
    assert {window.window_start: window.rows for window in out["rows"]} == counted
    assert {row.at for row in out["top"]} == {bid.at for bid in after}


class Stamp(Record):
    window_end: Instant
    rows: int


def test_windows_of_datetimes_may_have_instants_as_bounds() -> None:
    job = Job("stamps")
    bids = job.source(MemorySource(BIDS), event_time="at").named("bids")
    bids.window(tumbling("1m")).aggregate(Stamp, rows=count()).sink(MemorySink()).named("stamps")
    out = testing.run(job, {"bids": BIDS[:3]})
    assert out["stamps"] == [Stamp(int(moment(60).timestamp()) * SECOND, 3)]
