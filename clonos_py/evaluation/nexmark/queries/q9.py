"""Query 9, winning bids: the highest bid for each auction while it was open, the earliest of equal ones.

SELECT id, itemName, description, initialBid, reserve, dateTime, expires, seller, category, extra,
       auction, bidder, price, bid_dateTime, bid_extra
FROM (SELECT A.*, B.auction, B.bidder, B.price, B.dateTime AS bid_dateTime, B.extra AS bid_extra,
             ROW_NUMBER() OVER (PARTITION BY A.id ORDER BY B.price DESC, B.dateTime ASC) AS rownum
      FROM auction A, bid B WHERE A.id = B.auction AND B.dateTime BETWEEN A.dateTime AND A.expires)
WHERE rownum <= 1
"""

from __future__ import annotations

from clonos_py import Instant, Record, Table, col, until
from clonos_py.evaluation.nexmark.streams import Streams


class WinningBid(Record):
    id: int
    item_name: str
    description: str
    initial_bid: int
    reserve: int
    date_time: Instant
    expires: Instant
    seller: int
    category: int
    extra: str
    auction: int
    bidder: int
    price: int
    bid_date_time: Instant
    bid_extra: str


def q9(events: Streams) -> Table[WinningBid]:
    bids = events.bid.select("auction", "bidder", "price", bid_date_time=col("date_time"), bid_extra=col("extra"))
    offers = events.auction.join(bids, on=("id", "auction"), within=until("expires"), into=WinningBid).named("join")
    return offers.key_by("id").top(1, by=[col("price").desc(), "bid_date_time"], into=WinningBid).named("winners")
