"""Query 7, highest bid: the highest bids of every 10 seconds.

SELECT B.auction, B.bidder, B.price, B.dateTime, B.extra FROM bid B
JOIN (SELECT MAX(price) AS maxprice, window_end AS dateTime
      FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '10' SECOND)) GROUP BY window_start, window_end) B1
ON B.price = B1.maxprice WHERE B.dateTime BETWEEN B1.dateTime - INTERVAL '10' SECOND AND B1.dateTime

A bid at the very end of a window counts for the next one only.
"""

from __future__ import annotations

from clonos_py import Instant, Record, Stream, col, tumbling
from clonos_py.bench.nexmark.queries.q0 import PlainBid
from clonos_py.bench.nexmark.streams import Streams


class Highest(Record):
    maxprice: int
    window_end: Instant


def q7(events: Streams) -> Stream[PlainBid]:
    highest = events.bid.window(tumbling("10s")).aggregate(Highest, maxprice=col("price").max()).named("highest")
    return events.bid.join(highest, on=("price", "maxprice"), within=tumbling("10s"), into=PlainBid).named("join")
