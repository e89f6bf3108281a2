"""Query 20, bids with their auction: all bids for auctions of category 10, with the auction's columns.

SELECT auction, bidder, price, channel, url, B.dateTime, B.extra,
       itemName, description, initialBid, reserve, A.dateTime, expires, seller, category, A.extra
FROM bid AS B INNER JOIN auction AS A ON B.auction = A.id WHERE A.category = 10

A bid may arrive before its auction, so the join stores all rows of both sides.
"""

from __future__ import annotations

from clonos_py import Instant, Record, Stream, col, forever
from clonos_py.evaluation.nexmark.streams import Streams


class AuctionBid(Record):
    auction: int
    bidder: int
    price: int
    channel: str
    url: str
    bid_date_time: Instant
    bid_extra: str
    item_name: str
    description: str
    initial_bid: int
    reserve: int
    auction_date_time: Instant
    expires: Instant
    seller: int
    category: int
    auction_extra: str


def q20(events: Streams) -> Stream[AuctionBid]:
    bids = events.bid.select(
        "auction", "bidder", "price", "channel", "url", bid_date_time=col("date_time"), bid_extra=col("extra")
    )
    auctions = events.auction.filter(col("category") == 10).select(
        "id", "item_name", "description", "initial_bid", "reserve", "expires", "seller", "category",
        auction_date_time=col("date_time"), auction_extra=col("extra"),
    )  # fmt: skip
    return bids.join(auctions, on=("auction", "id"), within=forever(), into=AuctionBid).named("join")
