"""What every query must answer, computed without the engine: loops and dicts over Python values, one row at a time.

Nothing here is shared with the engine but the generator's events. Rows are tuples in the order of the query's output
columns; results have no order, so they are compared as multisets. Query 12 depends on processing time: only its total,
the number of bids, is certain.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from typing import Any, TypeAlias

from clonos_py.bench.nexmark.source import NexmarkSource

Row: TypeAlias = tuple[Any, ...]

_WINDOW_US, _SLIDE_US, _GAP_US = 10_000_000, 2_000_000, 10_000_000
_PERSON, _AUCTION, _BID = range(3)


def expected(query: str, source: NexmarkSource) -> list[Row]:
    """All output rows of a query over the events of a source, in any order."""
    return list(_ANSWERS[query](source))


def difference(expected_rows: Iterable[Row], actual_rows: Iterable[Row]) -> str | None:
    """None if both are the same multiset, else one line on how many rows are missing or too many, with one of each."""
    wanted, found = Counter(expected_rows), Counter(actual_rows)
    missing, surplus = wanted - found, found - wanted
    if not missing and not surplus:
        return None
    parts = [
        f"{count} {word} (such as {example})"
        for word, rows in (("missing", missing), ("too many", surplus))
        for count, example in [(sum(rows.values()), min(rows, default=()))]
        if count
    ]
    return f"of {sum(wanted.values())} rows " + ", ".join(parts)


def total_bids(source: NexmarkSource) -> int:
    """What the counts of query 12 must add up to."""
    return sum(1 for _ in _rows(source, _BID, "auction"))


def _q0(source: NexmarkSource) -> Iterator[Row]:
    return _rows(source, _BID, "auction", "bidder", "price", "date_time", "extra")


def _q1(source: NexmarkSource) -> Iterator[Row]:
    for auction, bidder, price, date_time, extra in _q0(source):
        yield auction, bidder, price * Decimal("0.908"), date_time, extra


def _q2(source: NexmarkSource) -> Iterator[Row]:
    for auction, price in _rows(source, _BID, "auction", "price"):
        if auction % 123 == 0:
            yield auction, price


def _q3(source: NexmarkSource) -> Iterator[Row]:
    people = {row[0]: row[1:] for row in _rows(source, _PERSON, "id", "name", "city", "state")}
    for auction, seller, category in _rows(source, _AUCTION, "id", "seller", "category"):
        if category == 10 and seller in people and people[seller][2] in ("OR", "ID", "CA"):
            yield *people[seller], auction


def _q5(source: NexmarkSource) -> Iterator[Row]:
    counts: defaultdict[int, Counter[int]] = defaultdict(Counter)
    for auction, time in _rows(source, _BID, "auction", "date_time"):
        last = time // _SLIDE_US * _SLIDE_US
        for start in range(last, time - _WINDOW_US, -_SLIDE_US):
            counts[start][auction] += 1
    for window in counts.values():
        most = max(window.values())
        for auction, bids in window.items():
            if bids == most:
                yield auction, bids


def _q7(source: NexmarkSource) -> Iterator[Row]:
    highest: dict[int, list[Row]] = {}
    for bid in _q0(source):
        window = bid[3] // _WINDOW_US
        best = highest.get(window)
        if best is None or bid[2] > best[0][2]:
            highest[window] = [bid]
        elif bid[2] == best[0][2]:
            best.append(bid)
    for bids in highest.values():
        yield from bids


def _q8(source: NexmarkSource) -> Iterator[Row]:
    sellers = {(seller, time // _WINDOW_US) for seller, time in _rows(source, _AUCTION, "seller", "date_time")}
    new = {(row[0], row[1], row[2] // _WINDOW_US) for row in _rows(source, _PERSON, "id", "name", "date_time")}
    for person, name, window in new:
        if (person, window) in sellers:
            yield person, name, window * _WINDOW_US


def _q11(source: NexmarkSource) -> Iterator[Row]:
    open_sessions: dict[int, list[int]] = {}
    for bidder, time in sorted(_rows(source, _BID, "bidder", "date_time"), key=lambda bid: bid[1]):
        session = open_sessions.get(bidder)
        if session is not None and time < session[2] + _GAP_US:
            session[0] += 1
            session[2] = time
            continue
        if session is not None:
            yield bidder, session[0], session[1], session[2] + _GAP_US
        open_sessions[bidder] = [1, time, time]
    for bidder, (bids, first, last) in open_sessions.items():
        yield bidder, bids, first, last + _GAP_US


def _rows(source: NexmarkSource, kind: int, *columns: str) -> Iterator[Row]:
    for events in source.generator.events(0, source.events):
        yield from zip(*(events[kind].column(column).to_pylist() for column in columns), strict=True)


_ANSWERS: dict[str, Callable[[NexmarkSource], Iterator[Row]]] = {
    "q0": _q0, "q1": _q1, "q2": _q2, "q3": _q3, "q5": _q5, "q7": _q7, "q8": _q8, "q11": _q11,
}  # fmt: skip
