"""Query 13, bounded side input: bids enriched from a side input.

SELECT B.auction, B.bidder, B.price, B.dateTime, S.value
FROM (SELECT *, PROCTIME() AS p_time FROM bid) B
JOIN side_input FOR SYSTEM_TIME AS OF B.p_time AS S ON mod(B.auction, 10000) = S.key

The side input does not change, so the time of the join does not matter.
"""

from __future__ import annotations

from clonos_py import Instant, Record, Stream, col
from clonos_py.evaluation.nexmark.side_input import ROWS, side_input
from clonos_py.evaluation.nexmark.streams import Streams


class EnrichedBid(Record):
    auction: int
    bidder: int
    price: int
    date_time: Instant
    value: str


def q13(events: Streams) -> Stream[EnrichedBid]:
    bids = events.bid.select("auction", "bidder", "price", "date_time", key=col("auction") % ROWS)
    return bids.enrich(side_input(), on="key", into=EnrichedBid)
