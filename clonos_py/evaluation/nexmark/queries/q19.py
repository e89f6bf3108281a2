"""Query 19, auction top 10: the ten highest bids for an auction.

SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC) AS rank_number FROM bid)
WHERE rank_number <= 10

The official SQL does not define the order of equal bids. Here the earlier one is first (ORDER BY price DESC, dateTime
ASC).
"""

from __future__ import annotations

from clonos_py import Instant, Record, Table, col
from clonos_py.evaluation.nexmark.streams import Streams


class RankedBid(Record):
    auction: int
    bidder: int
    price: int
    channel: str
    url: str
    date_time: Instant
    extra: str
    rank_number: int


def q19(events: Streams) -> Table[RankedBid]:
    return events.bid.key_by("auction").top(10, by=[col("price").desc(), "date_time"], into=RankedBid).named("top")
