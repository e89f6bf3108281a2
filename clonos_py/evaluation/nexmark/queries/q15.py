"""Query 15, bidding statistics: the numbers of bids, bidders and auctions per day and price level.

SELECT DATE_FORMAT(dateTime, 'yyyy-MM-dd') AS `day`, count(*) AS total_bids,
       count(*) FILTER (WHERE price < 10000) AS rank1_bids,
       count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
       count(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
       count(DISTINCT bidder) AS total_bidders, (the same three of bidders),
       count(DISTINCT auction) AS total_auctions, (the same three of auctions)
FROM bid GROUP BY DATE_FORMAT(dateTime, 'yyyy-MM-dd')
"""

from __future__ import annotations

from typing import Any

from clonos_py import Expr, Record, Table, col, count
from clonos_py.evaluation.nexmark.streams import Streams

DAY, MINUTE = "%Y-%m-%d", "%H:%M"


class DayReport(Record):
    day: str
    total_bids: int
    rank1_bids: int
    rank2_bids: int
    rank3_bids: int
    total_bidders: int
    rank1_bidders: int
    rank2_bidders: int
    rank3_bidders: int
    total_auctions: int
    rank1_auctions: int
    rank2_auctions: int
    rank3_auctions: int


def levels() -> dict[str, Expr]:
    """The price levels, by name."""
    price = col("price")
    return {"rank1": price < 10_000, "rank2": (price >= 10_000) & (price < 1_000_000), "rank3": price >= 1_000_000}


def bids_by_level() -> dict[str, Any]:
    """The number of bids, in total and at each price level."""
    return {"total_bids": count()} | {f"{name}_bids": count().where(level) for name, level in levels().items()}


def statistics() -> dict[str, Any]:
    """The numbers of bids, distinct bidders and distinct auctions, in total and at each price level."""
    found = bids_by_level()
    for what in ("bidder", "auction"):
        found[f"total_{what}s"] = col(what).count_distinct()
        found |= {f"{name}_{what}s": col(what).count_distinct().where(level) for name, level in levels().items()}
    return found


def q15(events: Streams) -> Table[DayReport]:
    days = events.bid.key_by(day=col("date_time").strftime(DAY))
    return days.aggregate(DayReport, **statistics()).named("report")
