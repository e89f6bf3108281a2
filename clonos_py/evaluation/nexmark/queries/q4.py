"""Query 4, average price for a category: the average final price of the auctions in each category.

SELECT Q.category AS id, AVG(Q.final) AS final
FROM (SELECT MAX(B.price) AS final, A.category FROM auction A, bid B
      WHERE A.id = B.auction AND B.dateTime BETWEEN A.dateTime AND A.expires
      GROUP BY A.id, A.category) Q
GROUP BY Q.category

In Flink SQL, an average of integers is an integer, rounded towards zero. The highest bid of an auction rises until the
auction ends, and each time the average of its category changes.
"""

from __future__ import annotations

from clonos_py import Record, Stream, Table, col, until
from clonos_py.evaluation.nexmark.streams import Streams


class CategoryBid(Record):
    auction: int
    id: int
    price: int


class Average(Record):
    id: int
    final: int


def bids_in_time(events: Streams) -> Stream[CategoryBid]:
    """Bids made while their auction was open, with its category."""
    auctions = events.auction.select("date_time", "expires", auction=col("id"), id=col("category"))
    bids = events.bid.select("price", "auction", bid_time=col("date_time"))
    return auctions.join(bids, on="auction", within=until("expires"), into=CategoryBid).named("join")


def q4(events: Streams) -> Table[Average]:
    finals = bids_in_time(events).key_by("auction", "id").aggregate(final=col("price").max()).named("finals")
    return finals.key_by("id").aggregate(Average, final=col("final").mean(whole=True)).named("averages")
