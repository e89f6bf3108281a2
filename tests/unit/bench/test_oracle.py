"""The independent answers, checked by hand on small streams."""

from __future__ import annotations

import itertools
from collections import Counter
from decimal import Decimal
from typing import Any

import pytest

from clonos_py.bench import oracle
from clonos_py.evaluation.nexmark.generator import BASE_TIME_US, Events, Generator
from clonos_py.evaluation.nexmark.jobs import QUERIES
from clonos_py.evaluation.nexmark.new_users import difference
from clonos_py.evaluation.nexmark.source import NexmarkSource

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
    expected = [
        (b["auction"], b["price"]) for b in events.bid.to_pylist() if b["auction"] in (1107, 1230, 1353, 1476, 1599)
    ]
    assert len(expected) > 20
    assert oracle.expected("q2", NexmarkSource(events=10_000, event_rate=50)) == expected


def test_query_3_joins_an_auction_with_its_seller_in_either_order() -> None:
    events = _events()
    people = {p["id"]: p for p in events.person.to_pylist()}
    expected = []
    for auction in events.auction.to_pylist():
        seller = people.get(auction["seller"])
        if seller and seller["state"] in ("OR", "ID", "CA") and auction["category"] == 10:
            expected.append((seller["name"], seller["city"], seller["state"], auction["id"]))
    assert expected
    assert oracle.expected("q3", SOURCE) == expected


def test_query_5_gives_the_hottest_auctions_of_every_ten_seconds_ending_every_two() -> None:
    bids = [(b["auction"], b["date_time"] - BASE_TIME_US) for b in _events().bid.to_pylist()]
    expected = []
    for start in range(-8, 40, 2):
        within = Counter(a for a, t in bids if start * 1_000_000 <= t < (start + 10) * 1_000_000)
        expected += [(a, n) for a, n in within.items() if n == max(within.values())]
    assert Counter(oracle.expected("q5", SOURCE)) == Counter(expected)
    assert len(expected) >= 24


def test_query_7_gives_the_highest_bid_of_each_ten_seconds() -> None:
    bids = oracle.expected("q0", SOURCE)
    by_window = [[b for b in bids if (b[3] - BASE_TIME_US) // 10_000_000 == k] for k in range(4)]
    expected = [bid for window in by_window for bid in window if bid[2] == max(b[2] for b in window)]
    assert oracle.expected("q7", SOURCE) == expected
    assert len(expected) >= 4


def test_query_8_gives_new_people_who_sell_in_the_same_ten_seconds() -> None:
    events = _events()
    expected = set()
    for person in events.person.to_pylist():
        start = person["date_time"] // 10_000_000 * 10_000_000
        for auction in events.auction.to_pylist():
            if auction["seller"] == person["id"] and start <= auction["date_time"] < start + 10_000_000:
                expected.add((person["id"], person["name"], start))
    assert 0 < len(expected) < 40
    assert Counter(oracle.expected("q8", SOURCE)) == Counter(expected)


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


def offers() -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Auctions and each bid within their time, in the order of auctions."""
    events = _events()
    bids = events.bid.to_pylist()
    return [
        (auction, bid)
        for auction in events.auction.to_pylist()
        for bid in bids
        if bid["auction"] == auction["id"] and auction["date_time"] <= bid["date_time"] <= auction["expires"]
    ]


def winning_bids() -> dict[int, tuple[dict[str, Any], dict[str, Any]]]:
    return {
        auction: min(pairs, key=lambda pair: (-pair[1]["price"], pair[1]["date_time"]))
        for auction, found in itertools.groupby(offers(), key=lambda pair: int(pair[0]["id"]))
        for pairs in [list(found)]
    }


def test_query_4_gives_the_average_of_the_highest_bids_of_a_category() -> None:
    by_category: dict[int, list[int]] = {}
    for auction, bid in winning_bids().values():
        by_category.setdefault(auction["category"], []).append(bid["price"])
    assert sorted(oracle.expected("q4", SOURCE)) == sorted((c, sum(p) // len(p)) for c, p in by_category.items())
    assert len(by_category) == 5


def test_query_6_gives_for_each_sale_the_average_of_the_last_eleven_of_its_seller() -> None:
    sales = sorted(winning_bids().values(), key=lambda pair: pair[1]["date_time"])
    expected = []
    for number, (auction, _) in enumerate(sales):
        before = [bid["price"] for other, bid in sales[: number + 1] if other["seller"] == auction["seller"]][-11:]
        expected.append((auction["seller"], sum(before) // len(before)))
    assert Counter(oracle.expected("q6", SOURCE)) == Counter(expected)
    assert len(expected) > 11


def test_query_9_gives_the_highest_bid_of_each_auction() -> None:
    expected = [
        (*auction.values(), bid["auction"], bid["bidder"], bid["price"], bid["date_time"], bid["extra"])
        for auction, bid in winning_bids().values()
    ]
    assert Counter(oracle.expected("q9", SOURCE)) == Counter(expected)


def test_query_10_gives_every_bid_with_its_day_and_minute() -> None:
    rows = oracle.expected("q10", SOURCE)
    assert [row[:5] for row in rows] == oracle.expected("q0", SOURCE)
    assert {row[5:] for row in rows} == {("2023-11-14", "22:13")}


def test_query_13_gives_every_bid_with_the_side_input_of_its_auction() -> None:
    rows = oracle.expected("q13", NexmarkSource(events=2_000, event_rate=50))
    assert [(*row[:4], row[4]) for row in rows] == [(*bid[:4], str(bid[0])) for bid in oracle.expected("q0", SOURCE)]


def test_query_14_gives_bids_of_a_medium_price() -> None:
    rows = oracle.expected("q14", SOURCE)
    bids = [bid for bid in oracle.expected("q0", SOURCE) if 1_000_000_000 < 908 * bid[2] < 50_000_000_000]
    assert [(row[0], row[1], row[4], row[5]) for row in rows] == [(bid[0], bid[1], bid[3], bid[4]) for bid in bids]
    assert {row[3] for row in rows} == {"nightTime"}  # the events begin at 22:13
    assert all(row[6] == len(row[5]) - len(row[5].replace("c", "")) for row in rows)


def test_queries_15_16_and_17_count_bids_bidders_and_auctions() -> None:
    bids = _events().bid.to_pylist()
    (day,) = oracle.expected("q15", SOURCE)
    assert day[:2] == ("2023-11-14", len(bids))
    assert day[2] + day[3] + day[4] == len(bids)
    assert (day[5], day[9]) == (len({b["bidder"] for b in bids}), len({b["auction"] for b in bids}))
    assert (day[6], day[12]) == (
        len({b["bidder"] for b in bids if b["price"] < 10_000}),
        len({b["auction"] for b in bids if b["price"] >= 1_000_000}),
    )
    channels = oracle.expected("q16", SOURCE)
    assert {row[0] for row in channels} == {b["channel"] for b in bids}
    assert {row[1:3] for row in channels} == {("2023-11-14", "22:13")}
    assert sum(row[3] for row in channels) == len(bids)
    auctions = oracle.expected("q17", SOURCE)
    assert sorted(row[0] for row in auctions) == sorted({b["auction"] for b in bids})
    assert all(row[6] <= row[8] <= row[7] and row[8] == row[9] // row[2] for row in auctions)
    assert sum(row[9] for row in auctions) == sum(b["price"] for b in bids)


def test_query_18_gives_the_last_bid_of_each_bidder_for_each_auction() -> None:
    last = {(b["bidder"], b["auction"]): tuple(b.values()) for b in _events().bid.to_pylist()}
    assert Counter(oracle.expected("q18", SOURCE)) == Counter(last.values())


def test_query_19_gives_the_ten_highest_bids_of_each_auction() -> None:
    rows = oracle.expected("q19", SOURCE)
    prices: dict[int, list[int]] = {}
    for bid in _events().bid.to_pylist():
        prices.setdefault(bid["auction"], []).append(bid["price"])
    for auction, every in prices.items():
        found = sorted((row[7], row[2]) for row in rows if row[0] == auction)
        assert found == list(enumerate(sorted(every, reverse=True)[:10], 1))


def test_query_20_gives_bids_with_their_auction_of_category_10() -> None:
    events = _events()
    auctions = {a["id"]: a for a in events.auction.to_pylist() if a["category"] == 10}
    rows = oracle.expected("q20", SOURCE)
    assert [row[:7] for row in rows] == [tuple(b.values()) for b in events.bid.to_pylist() if b["auction"] in auctions]
    assert all(row[7:] == tuple(auctions[row[0]].values())[1:] for row in rows)


def test_query_21_gives_bids_whose_channel_has_a_number() -> None:
    rows = oracle.expected("q21", SOURCE)
    assert {row[3] for row in rows if row[4] in "0123"} >= {"Apple", "Google", "Facebook", "Baidu"}
    numbers = {b["channel"]: b["url"].partition("channel_id=")[2] for b in _events().bid.to_pylist()}
    assert all(row[4] == numbers[row[3]] for row in rows if row[3].startswith("channel-"))
    assert 0 < len(rows) < 40 * 46


def test_query_22_gives_the_folders_of_the_page() -> None:
    rows, bids = oracle.expected("q22", SOURCE), _events().bid.to_pylist()
    assert all(
        f"https://www.nexmark.com/{'/'.join(row[4:])}/" in bid["url"] for row, bid in zip(rows, bids, strict=True)
    )


def test_a_difference_is_described_in_one_line() -> None:
    assert difference([(1, 2), (1, 2), (3, 4)], [(3, 4), (1, 2), (1, 2)]) is None
    assert difference([(1, 2), (1, 2), (3, 4)], [(1, 2), (3, 4), (5, 6)]) == (
        "of 3 rows 1 missing (such as (1, 2)), 1 too many (such as (5, 6))"
    )


@pytest.mark.parametrize("query", [query for query in QUERIES if query != "q12"])
def test_partitions_and_pace_do_not_change_an_answer(query: str) -> None:
    other = NexmarkSource(events=2_000, event_rate=50, partitions=3, rate=10)
    assert difference(oracle.expected(query, SOURCE), oracle.expected(query, other)) is None


def _events() -> Events:
    (events,) = Generator(event_rate=50).events(0, 2_000)
    return events
