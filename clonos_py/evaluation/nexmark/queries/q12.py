"""Query 12, processing-time windows: how many bids does a bidder make within 10 seconds of processing time?

SELECT bidder, count(*) AS bid_count, window_start AS starttime, window_end AS endtime
FROM TABLE(TUMBLE(TABLE (SELECT *, PROCTIME() AS p_time FROM bid), DESCRIPTOR(p_time), INTERVAL '10' SECOND))
GROUP BY bidder, window_start, window_end

The window of a bid is nondeterministic. Only the sum of all counts is fixed.
"""

from __future__ import annotations

from clonos_py import Instant, Record, Stream, count, tumbling
from clonos_py.evaluation.nexmark.streams import Streams


class BidderWindow(Record):
    bidder: int
    bid_count: int
    window_start: Instant
    window_end: Instant


def q12(events: Streams) -> Stream[BidderWindow]:
    windows = events.bid.key_by("bidder").window(tumbling("10s", processing_time=True))
    return windows.aggregate(BidderWindow, bid_count=count()).named("counts")
