"""Query 17, auction statistics: the number of bids and their prices per auction and day.

SELECT auction, DATE_FORMAT(dateTime, 'yyyy-MM-dd') AS `day`, count(*) AS total_bids,
       count(*) FILTER (WHERE price < 10000) AS rank1_bids,
       count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
       count(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
       min(price) AS min_price, max(price) AS max_price, avg(price) AS avg_price, sum(price) AS sum_price
FROM bid GROUP BY auction, DATE_FORMAT(dateTime, 'yyyy-MM-dd')

In Flink SQL, an average of integers is an integer, rounded towards zero.
"""

from __future__ import annotations

from clonos_py import Record, Table, col
from clonos_py.evaluation.nexmark.queries.q15 import DAY, bids_by_level
from clonos_py.evaluation.nexmark.streams import Streams


class AuctionReport(Record):
    auction: int
    day: str
    total_bids: int
    rank1_bids: int
    rank2_bids: int
    rank3_bids: int
    min_price: int
    max_price: int
    avg_price: int
    sum_price: int


def q17(events: Streams) -> Table[AuctionReport]:
    price = col("price")
    prices = {
        "min_price": price.min(),
        "max_price": price.max(),
        "avg_price": price.mean(whole=True),
        "sum_price": price.sum(),
    }
    auctions = events.bid.key_by("auction", day=col("date_time").strftime(DAY))
    return auctions.aggregate(AuctionReport, **bids_by_level(), **prices).named("report")
