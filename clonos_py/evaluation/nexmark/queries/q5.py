"""Query 5, hot items: which auctions had the most bids in the last 10 seconds, every 2 seconds?

SELECT AuctionBids.auction, AuctionBids.num
FROM (SELECT auction, count(*) AS num, window_start AS starttime, window_end AS endtime
      FROM TABLE(HOP(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
      GROUP BY auction, window_start, window_end) AS AuctionBids
JOIN (SELECT max(CountBids.num) AS maxn, CountBids.starttime, CountBids.endtime
      FROM (the same) AS CountBids GROUP BY CountBids.starttime, CountBids.endtime) AS MaxBids
ON AuctionBids.starttime = MaxBids.starttime AND AuctionBids.endtime = MaxBids.endtime
   AND AuctionBids.num >= MaxBids.maxn

No count exceeds the maximum, so ">=" is equivalent to "=". The event time of a result is just before the end of its
window. The ends of hopping windows are 2 seconds apart, so a tumbling window of 2 seconds holds the results of one
hopping window.
"""

from __future__ import annotations

from clonos_py import Instant, Record, Stream, col, count, hopping, tumbling
from clonos_py.evaluation.nexmark.streams import Streams


class AuctionBids(Record):
    auction: int
    window_end: Instant
    num: int


class MaxBids(Record):
    window_end: Instant
    maxn: int


class HotItem(Record):
    auction: int
    num: int


def q5(events: Streams) -> Stream[HotItem]:
    counts = (
        events.bid.key_by("auction").window(hopping("10s", "2s")).aggregate(AuctionBids, num=count()).named("counts")
    )
    most = counts.window(tumbling("2s")).aggregate(MaxBids, maxn=col("num").max()).named("most")
    hot = counts.join(most, on=("num", "maxn"), within=tumbling("2s"), into=HotItem)
    return hot.named("hot")
