"""Minimal jobs that shuffle rows between tasks, or call a Python function per row. Not in the official suite."""

from __future__ import annotations

from clonos_py import Instant, Record, Stream, col
from clonos_py.evaluation.nexmark.events import Bid
from clonos_py.evaluation.nexmark.queries.q0 import PlainBid
from clonos_py.evaluation.nexmark.queries.q1 import EuroBid, q1
from clonos_py.evaluation.nexmark.queries.q2 import Selected, q2
from clonos_py.evaluation.nexmark.streams import Streams

_LENGTH = 5


class Price(Record):
    auction: int
    bidder: int
    price: int
    date_time: Instant


def rebalanced(events: Streams) -> Stream[PlainBid]:
    """Query 0 followed by a shuffle."""
    return events.bid.select(PlainBid).rebalance()


def rebalanced_q1(events: Streams) -> Stream[EuroBid]:
    """Query 1 followed by a shuffle."""
    return q1(events).rebalance()


def rebalanced_q2(events: Streams) -> Stream[Selected]:
    """Query 2 followed by a shuffle."""
    return q2(events).rebalance()


def chain(events: Streams) -> Stream[Price]:
    """Five maps over narrow rows, each after a shuffle."""
    stream = events.bid.select(Price)
    for _ in range(_LENGTH):
        stream = stream.rebalance().select(Price, price=col("price") + 1)
    return stream


def wide_chain(events: Streams) -> Stream[Bid]:
    """Five maps over all columns of a bid, each after a shuffle."""
    stream = events.bid
    for _ in range(_LENGTH):
        stream = stream.rebalance().select(Bid, price=col("price") + 1)
    return stream


def row_function(events: Streams) -> Stream[Price]:
    """A Python function called for each bid, with four columns in and out."""
    return events.bid.map(in_euros)


def in_euros(bid: Price) -> Price:
    """Query 1 as a row function."""
    return Price(bid.auction, bid.bidder, bid.price * 908 // 1000, bid.date_time)
