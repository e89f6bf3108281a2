"""The expected answers of the queries, computed without the engine: loops and dicts over Python values, row by row.

It shares only the generator's events with the engine. Rows are tuples in the order of the query's output columns.
Results have no order, so they are compared as multisets. Query 12 depends on processing time: only its total, the
number of bids, is deterministic.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, TypeAlias

from clonos_py.evaluation.nexmark.generator import AUCTION, BID, PERSON
from clonos_py.evaluation.nexmark.new_users import WINDOW_US, Row, new_users, rows_of
from clonos_py.evaluation.nexmark.side_input import ROWS as SIDE_ROWS
from clonos_py.evaluation.nexmark.side_input import value_of
from clonos_py.evaluation.nexmark.source import NexmarkSource

Fields: TypeAlias = dict[str, Any]

_SCHEMAS = {"person": PERSON, "auction": AUCTION, "bid": BID}
_SLIDE_US, _GAP_US = 2_000_000, 10_000_000


def expected(query: str, source: NexmarkSource) -> list[Row]:
    """All output rows of a query over the events of a source, in any order."""
    return list(_ANSWERS[query](source))


def total_bids(source: NexmarkSource) -> int:
    """The expected sum of the counts of query 12."""
    return sum(1 for _ in rows_of(source, "bid", "auction"))


def _q0(source: NexmarkSource) -> Iterator[Row]:
    return rows_of(source, "bid", "auction", "bidder", "price", "date_time", "extra")


def _q1(source: NexmarkSource) -> Iterator[Row]:
    for auction, bidder, price, date_time, extra in _q0(source):
        yield auction, bidder, price * Decimal("0.908"), date_time, extra


def _q2(source: NexmarkSource) -> Iterator[Row]:
    for auction, price in rows_of(source, "bid", "auction", "price"):
        if auction % 123 == 0:
            yield auction, price


def _q3(source: NexmarkSource) -> Iterator[Row]:
    people = {row[0]: row[1:] for row in rows_of(source, "person", "id", "name", "city", "state")}
    for auction, seller, category in rows_of(source, "auction", "id", "seller", "category"):
        if category == 10 and seller in people and people[seller][2] in ("OR", "ID", "CA"):
            yield *people[seller], auction


def _q5(source: NexmarkSource) -> Iterator[Row]:
    counts: defaultdict[int, Counter[int]] = defaultdict(Counter)
    for auction, time in rows_of(source, "bid", "auction", "date_time"):
        last = time // _SLIDE_US * _SLIDE_US
        for start in range(last, time - WINDOW_US, -_SLIDE_US):
            counts[start][auction] += 1
    for window in counts.values():
        most = max(window.values())
        for auction, bids in window.items():
            if bids == most:
                yield auction, bids


def _q7(source: NexmarkSource) -> Iterator[Row]:
    highest: dict[int, list[Row]] = {}
    for bid in _q0(source):
        window = bid[3] // WINDOW_US
        best = highest.get(window)
        if best is None or bid[2] > best[0][2]:
            highest[window] = [bid]
        elif bid[2] == best[0][2]:
            best.append(bid)
    for bids in highest.values():
        yield from bids


def _q11(source: NexmarkSource) -> Iterator[Row]:
    open_sessions: dict[int, list[int]] = {}
    for bidder, time in sorted(rows_of(source, "bid", "bidder", "date_time"), key=lambda bid: bid[1]):
        session = open_sessions.get(bidder)
        if session is not None and time <= session[2] + _GAP_US:
            session[0] += 1
            session[2] = time
            continue
        if session is not None:
            yield bidder, session[0], session[1], session[2] + _GAP_US
        open_sessions[bidder] = [1, time, time]
    for bidder, (bids, first, last) in open_sessions.items():
        yield bidder, bids, first, last + _GAP_US


def _q4(source: NexmarkSource) -> Iterator[Row]:
    finals: dict[int, tuple[int, int]] = {}
    for auction, bid in _offers(source):
        price = max(bid["price"], finals.get(auction["id"], (0, 0))[1])
        finals[auction["id"]] = auction["category"], price
    by_category: defaultdict[int, list[int]] = defaultdict(list)
    for category, price in finals.values():
        by_category[category].append(price)
    for category, prices in by_category.items():
        yield category, sum(prices) // len(prices)


def _q6(source: NexmarkSource) -> Iterator[Row]:
    sales: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for auction, bid in _winners(source):
        sales[auction["seller"]].append((bid["date_time"], bid["price"]))
    for seller, sold in sales.items():
        prices = [price for _, price in sorted(sold)]
        for number in range(len(prices)):
            last = prices[max(number - 10, 0) : number + 1]
            yield seller, sum(last) // len(last)


def _q9(source: NexmarkSource) -> Iterator[Row]:
    for auction, bid in _winners(source):
        yield *auction.values(), *(bid[name] for name in ("auction", "bidder", "price", "date_time", "extra"))


def _q10(source: NexmarkSource) -> Iterator[Row]:
    for bid in _q0(source):
        yield *bid, *f"{_moment(bid[3]):%Y-%m-%d %H:%M}".split()


def _q13(source: NexmarkSource) -> Iterator[Row]:
    for auction, bidder, price, date_time, _ in _q0(source):
        yield auction, bidder, price, date_time, value_of(auction % SIDE_ROWS)


def _q14(source: NexmarkSource) -> Iterator[Row]:
    for auction, bidder, price, date_time, extra in _q0(source):
        euros, hour = price * Decimal("0.908"), _moment(date_time).hour
        kind = "dayTime" if 8 <= hour <= 18 else "nightTime" if hour <= 6 or hour >= 20 else "otherTime"
        if 1_000_000 < euros < 50_000_000:
            yield auction, bidder, euros, kind, date_time, extra, extra.count("c")


def _q15(source: NexmarkSource) -> Iterator[Row]:
    for (day,), bids in _bids_by(source, lambda bid: (_day(bid),)).items():
        yield day, *_statistics(bids)


def _q16(source: NexmarkSource) -> Iterator[Row]:
    for (channel, day), bids in _bids_by(source, lambda bid: (bid["channel"], _day(bid))).items():
        yield channel, day, max(f"{_moment(bid['date_time']):%H:%M}" for bid in bids), *_statistics(bids)


def _q17(source: NexmarkSource) -> Iterator[Row]:
    for (auction, day), bids in _bids_by(source, lambda bid: (bid["auction"], _day(bid))).items():
        prices = [bid["price"] for bid in bids]
        levels = [len(level) for level in _levels(bids)]
        yield auction, day, *levels, min(prices), max(prices), sum(prices) // len(prices), sum(prices)


def _q18(source: NexmarkSource) -> Iterator[Row]:
    for bids in _bids_by(source, lambda bid: (bid["bidder"], bid["auction"])).values():
        yield tuple(max(bids, key=lambda bid: bid["date_time"]).values())


def _q19(source: NexmarkSource) -> Iterator[Row]:
    for bids in _bids_by(source, lambda bid: (bid["auction"],)).values():
        highest = sorted(bids, key=lambda bid: (-bid["price"], bid["date_time"]))[:10]
        yield from ((*bid.values(), rank) for rank, bid in enumerate(highest, 1))


def _q20(source: NexmarkSource) -> Iterator[Row]:
    auctions = {auction["id"]: auction for auction in _fields(source, "auction")}
    for bid in _fields(source, "bid"):
        auction = auctions.get(bid["auction"])
        if auction is not None and auction["category"] == 10:
            yield *bid.values(), *(auction[name] for name in AUCTION.names if name != "id")


def _q21(source: NexmarkSource) -> Iterator[Row]:
    known = {"apple": "0", "google": "1", "facebook": "2", "baidu": "3"}
    for bid in _fields(source, "bid"):
        named = [part.removeprefix("channel_id=") for part in bid["url"].split("&") if part.startswith("channel_id=")]
        channel_id = known.get(bid["channel"].lower()) or next(iter(named), None)
        if channel_id is not None:
            yield bid["auction"], bid["bidder"], bid["price"], bid["channel"], channel_id


def _q22(source: NexmarkSource) -> Iterator[Row]:
    for auction, bidder, price, channel, url in rows_of(source, "bid", "auction", "bidder", "price", "channel", "url"):
        yield auction, bidder, price, channel, *url.split("/")[3:6]


def _offers(source: NexmarkSource) -> Iterator[tuple[Fields, Fields]]:
    """Pairs of an auction and a bid made while it was open."""
    auctions = {auction["id"]: auction for auction in _fields(source, "auction")}
    for bid in _fields(source, "bid"):
        auction = auctions.get(bid["auction"])
        if auction is not None and auction["date_time"] <= bid["date_time"] <= auction["expires"]:
            yield auction, bid


def _winners(source: NexmarkSource) -> Iterable[tuple[Fields, Fields]]:
    """Pairs of an auction and its highest bid, the earliest of equal ones."""
    winners: dict[int, tuple[Fields, Fields]] = {}
    for auction, bid in _offers(source):
        best = winners.get(auction["id"])
        if best is None or (-bid["price"], bid["date_time"]) < (-best[1]["price"], best[1]["date_time"]):
            winners[auction["id"]] = auction, bid
    return winners.values()


def _bids_by(source: NexmarkSource, key: Callable[[Fields], Row]) -> dict[Row, list[Fields]]:
    found: defaultdict[Row, list[Fields]] = defaultdict(list)
    for bid in _fields(source, "bid"):
        found[key(bid)].append(bid)
    return found


def _levels(bids: list[Fields]) -> list[list[Fields]]:
    """All bids, and the bids at each of the three price levels."""
    low, high = 10_000, 1_000_000
    return [
        bids,
        [bid for bid in bids if bid["price"] < low],
        [bid for bid in bids if low <= bid["price"] < high],
        [bid for bid in bids if bid["price"] >= high],
    ]


def _statistics(bids: list[Fields]) -> Iterator[int]:
    """The numbers of bids, bidders and auctions, each in total and at each price level."""
    levels = _levels(bids)
    yield from map(len, levels)
    for what in ("bidder", "auction"):
        yield from (len({bid[what] for bid in level}) for level in levels)


def _moment(time_us: int) -> datetime:
    return datetime.fromtimestamp(time_us // 1_000_000, UTC)


def _day(bid: Fields) -> str:
    return _moment(bid["date_time"]).date().isoformat()


def _fields(source: NexmarkSource, kind: str) -> Iterator[Fields]:
    """Events as dicts by column name."""
    names = _SCHEMAS[kind].names
    return (dict(zip(names, row, strict=True)) for row in rows_of(source, kind, *names))


_ANSWERS: dict[str, Callable[[NexmarkSource], Iterator[Row]]] = {
    "q0": _q0, "q1": _q1, "q2": _q2, "q3": _q3, "q4": _q4, "q5": _q5, "q6": _q6, "q7": _q7, "q8": new_users, "q9": _q9,
    "q10": _q10, "q11": _q11, "q13": _q13, "q14": _q14, "q15": _q15, "q16": _q16, "q17": _q17, "q18": _q18, "q19": _q19,
    "q20": _q20, "q21": _q21, "q22": _q22,
}  # fmt: skip
