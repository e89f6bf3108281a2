"""The independent answers, checked by hand on small streams."""

from __future__ import annotations

import itertools
from collections import Counter
from decimal import Decimal

import pytest

from clonos_py.bench.nexmark import oracle
from clonos_py.bench.nexmark.generator import BASE_TIME_US, Events, Generator
from clonos_py.bench.nexmark.source import NexmarkSource

SOURCE = NexmarkSource(events=2_000, event_rate=50)  # 40 seconds of event time: 1 person, 3 auctions, 46 bids a second


def test_query_0_gives_every_bid() -> None:
    rows = oracle.expected("q0", SOURCE)
    assert len(rows) == 40 * 46 == oracle.total_bids(SOURCE)
    first = _events().bid.to_pylist()[0]
    assert rows[0] == (first["auction"], first["bidder"], first["price"], BASE_TIME_US + 80_000, first["extra"])


def test_query_1_converts_to_euros_exactly() -> None:
    dollars, euros = oracle.expected("q0", SOURCE)[7], oracle.expected("q1", SOURCE)[7]
    assert euros == (*dollars[:2], Decimal(dollars[2]) * 908 / 1000, *dollars[3:])


def test_query_2_gives_bids_for_every_123rd_auction() -> None:
    (events,) = Generator(event_rate=50).events(0, 10_000)
    wanted = [
        (b["auction"], b["price"]) for b in events.bid.to_pylist() if b["auction"] in (1107, 1230, 1353, 1476, 1599)
    ]
    assert len(wanted) > 20
    assert oracle.expected("q2", NexmarkSource(events=10_000, event_rate=50)) == wanted


def test_query_3_joins_an_auction_with_its_seller_whoever_comes_first() -> None:
    events = _events()
    people = {p["id"]: p for p in events.person.to_pylist()}
    wanted = []
    for auction in events.auction.to_pylist():
        seller = people.get(auction["seller"])
        if seller and seller["state"] in ("OR", "ID", "CA") and auction["category"] == 10:
            wanted.append((seller["name"], seller["city"], seller["state"], auction["id"]))
    assert wanted
    assert oracle.expected("q3", SOURCE) == wanted


def test_query_5_gives_the_hottest_auctions_of_every_ten_seconds_ending_every_two() -> None:
    bids = [(b["auction"], b["date_time"] - BASE_TIME_US) for b in _events().bid.to_pylist()]
    wanted = []
    for start in range(-8, 40, 2):
        within = Counter(a for a, t in bids if start * 1_000_000 <= t < (start + 10) * 1_000_000)
        wanted += [(a, n) for a, n in within.items() if n == max(within.values())]
    assert Counter(oracle.expected("q5", SOURCE)) == Counter(wanted)
    assert len(wanted) >= 24


def test_query_7_gives_the_highest_bid_of_each_ten_seconds() -> None:
    bids = oracle.expected("q0", SOURCE)
    by_window = [[b for b in bids if (b[3] - BASE_TIME_US) // 10_000_000 == k] for k in range(4)]
    wanted = [bid for window in by_window for bid in window if bid[2] == max(b[2] for b in window)]
    assert oracle.expected("q7", SOURCE) == wanted
    assert len(wanted) >= 4


def test_query_8_gives_new_people_who_sell_in_the_same_ten_seconds() -> None:
    events = _events()
    wanted = set()
    for person in events.person.to_pylist():
        start = person["date_time"] // 10_000_000 * 10_000_000
        for auction in events.auction.to_pylist():
            if auction["seller"] == person["id"] and start <= auction["date_time"] < start + 10_000_000:
                wanted.add((person["id"], person["name"], start))
    assert 0 < len(wanted) < 40
    assert Counter(oracle.expected("q8", SOURCE)) == Counter(wanted)


def test_query_11_ends_a_session_after_ten_seconds_without_a_bid() -> None:
    rows = oracle.expected("q11", SOURCE)
    assert sum(row[1] for row in rows) == 40 * 46
    times: dict[int, list[int]] = {}
    for bid in _events().bid.to_pylist():
        times.setdefault(bid["bidder"], []).append(bid["date_time"])
    for bidder, bids, start, end in rows:
        inside = [t for t in times[bidder] if start <= t < end]
        assert (len(inside), inside[0], inside[-1] + 10_000_000) == (bids, start, end)
        assert all(later - earlier < 10_000_000 for earlier, later in itertools.pairwise(inside))
    assert len(rows) > len(times)


def test_a_difference_is_told_in_one_line() -> None:
    assert oracle.difference([(1, 2), (1, 2), (3, 4)], [(3, 4), (1, 2), (1, 2)]) is None
    assert oracle.difference([(1, 2), (1, 2), (3, 4)], [(1, 2), (3, 4), (5, 6)]) == (
        "of 3 rows 1 missing (such as (1, 2)), 1 too many (such as (5, 6))"
    )


@pytest.mark.parametrize("query", ["q0", "q1", "q2", "q3", "q5", "q7", "q8", "q11"])
def test_partitions_and_pace_do_not_change_an_answer(query: str) -> None:
    other = NexmarkSource(events=2_000, event_rate=50, partitions=3, rate=10)
    assert oracle.difference(oracle.expected(query, SOURCE), oracle.expected(query, other)) is None


def _events() -> Events:
    (events,) = Generator(event_rate=50).events(0, 2_000)
    return events
