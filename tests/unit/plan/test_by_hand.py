"""Plans whose operators are made and fed by hand give the right rows, at any parallelism."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clonos_py import (
    Context,
    Instant,
    Job,
    Process,
    Record,
    at,
    between,
    col,
    count,
    event_timer,
    forever,
    session,
    state,
    tumbling,
)  # fmt: skip
from clonos_py.connectors import MemorySink, MemorySource
from clonos_py.plan.physical import plan
from tests.unit.dsl.connectors import Bid
from tests.unit.plan.by_hand import ByHand

BIDS = [Bid(n % 3, n % 4, Decimal(n), at(f"{n}s"), f"b{n}" if n % 2 else None) for n in range(1, 30)]


def run(job: Job, parallelism: int = 2) -> dict[str, list[dict[str, Any]]]:
    return ByHand(plan(job, parallelism=parallelism)).rows


def rows(found: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in found)


class Word(Record):
    word: str


class Text(Record):
    text: str


def words(row: Text) -> Iterator[Word]:
    yield from (Word(word) for word in row.text.split())


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_a_word_count_by_hand_is_right(parallelism: int) -> None:
    texts = ["to be or not", "to be", "that is", "the question to"]
    job = Job("words")
    source = job.source(MemorySource([Text(text) for text in texts], partitions=3))
    source.flat_map(words).key_by("word").aggregate(n=count()).at_end().sink(MemorySink("out"))
    assert rows(run(job, parallelism)["sink-out"]) == sorted(Counter(" ".join(texts).split()).items())


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 60)), max_size=40), st.sampled_from([1, 3]))
def test_windows_by_hand_count_their_rows(events: list[tuple[int, int]], parallelism: int) -> None:
    job = Job("windows")
    events.sort(key=lambda event: event[1])
    source = MemorySource([Bid(key, 0, Decimal(1), at(f"{s}s")) for key, s in events], schema=Bid)
    stream = job.source(source, event_time="at")
    stream.filter(col("price") > 0).key_by("auction").window(tumbling("10s")).aggregate(n=count()).sink(
        MemorySink("out")
    )
    expected = Counter((key, at(f"{s // 10 * 10}s"), at(f"{s // 10 * 10 + 10}s")) for key, s in events)
    assert rows(run(job, parallelism)["sink-out"]) == sorted((*window, n) for window, n in expected.items())


def test_a_filter_moved_to_the_sides_of_a_join_does_not_change_the_output() -> None:
    condition = (col("price") > 3) & (col("other") < 20) & (col("auction") != col("other"))

    def job(movable: bool) -> Job:
        made = Job("join")
        left = made.source(MemorySource(BIDS), event_time="at").named("left")
        right = made.source(MemorySource(BIDS)).named("right").select(key="bidder", other=col("price"))
        pairs = left.join(right, on=("bidder", "key"), within=forever())
        if not movable:
            pairs.sink(MemorySink("all"))
        pairs.filter(condition).select("auction", "price", "other").sink(MemorySink("out"))
        return made

    moved, kept = run(job(movable=True)), run(job(movable=False))
    assert rows(moved["sink-out"]) == rows(kept["sink-out"])
    assert len(moved["sink-out"]) > 20


def test_a_join_with_time_bounds_pairs_rows_within_them() -> None:
    job = Job("apart")
    left = job.source(MemorySource(BIDS), event_time="at").named("left").select("auction", "at", "price")
    right = job.source(MemorySource(BIDS), event_time="at").named("right")
    later = right.select(key="auction", time="at", other=col("price"))
    pairs = left.join(later, on=("auction", "key"), within=between("-3s", "1s")).select("price", "other")
    pairs.sink(MemorySink("out"))
    expected = [
        (a.price, b.price)
        for a in BIDS
        for b in BIDS
        if a.auction == b.auction and at("-3s") <= b.at - a.at <= at("1s")
    ]
    assert len(expected) > len(BIDS)
    assert rows(run(job)["sink-out"]) == sorted(expected)


def test_unions_of_differently_pruned_branches_agree() -> None:
    job = Job("union")
    stream = job.source(MemorySource(BIDS, partitions=2), event_time="at")
    cheap, rest = stream.filter(col("price") < 5), stream.filter(col("note").is_null())
    cheap.union(rest).key_by("auction").aggregate(n=count()).at_end().sink(MemorySink("out"))
    expected = Counter(bid.auction for bid in BIDS if bid.price < 5) + Counter(
        b.auction for b in BIDS if b.note is None
    )
    assert rows(run(job)["sink-out"]) == sorted(expected.items())


class Burst(Record):
    auction: int
    rows: int


class Bursts(Process[Bid, Burst]):
    seen: int = state(0)
    over = event_timer()

    def on_row(self, bid: Bid, ctx: Context) -> None:
        self.seen += 1
        self.over.set(ctx.event_time + at("5s"))

    @over.fires
    def report(self, ctx: Context) -> Iterator[Burst]:
        yield Burst(0, self.seen)


def test_a_process_by_hand_keeps_state_and_fires_timers() -> None:
    job = Job("process")
    stream = job.source(MemorySource(BIDS), event_time="at")
    stream.key_by("auction").process(Bursts, in_order=True).sink(MemorySink("out"))
    assert rows(run(job)["sink-out"]) == [(0, 9), (0, 10), (0, 10)]


class Seen(Record):
    bidder: int
    window_start: Instant
    n: int


def test_sessions_join_windows_and_caught_failures_run_together() -> None:
    def picky(bid: Bid) -> Bid:
        if bid.price == 7:
            raise ValueError("seven")
        return bid

    job = Job("session")
    good, bad = job.source(MemorySource(BIDS), event_time="at").map(picky).catch()
    good.key_by("bidder").window(session("5s")).aggregate(Seen, n=count()).sink(MemorySink("out"))
    bad.select("operator", "error").sink(MemorySink("bad"))
    found = run(job)
    assert sum(row["n"] for row in found["sink-out"]) == len(BIDS) - 1
    assert found["sink-bad"][0]["operator"] == "map"
    assert "seven" in found["sink-bad"][0]["error"]
