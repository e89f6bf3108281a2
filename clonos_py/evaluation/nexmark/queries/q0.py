"""Query 0, pass through: measures the overhead of the engine.

SELECT auction, bidder, price, dateTime, extra FROM bid
"""

from __future__ import annotations

from clonos_py import Instant, Record, Stream
from clonos_py.evaluation.nexmark.streams import Streams


class PlainBid(Record):
    auction: int
    bidder: int
    price: int
    date_time: Instant
    extra: str


def q0(events: Streams) -> Stream[PlainBid]:
    return events.bid.select(PlainBid)
