"""Query 11, user sessions: how many bids does a bidder make before a pause of 10 seconds?

SELECT B.bidder, count(*) AS bid_count, SESSION_START(B.dateTime, INTERVAL '10' SECOND) AS starttime,
       SESSION_END(B.dateTime, INTERVAL '10' SECOND) AS endtime
FROM bid B GROUP BY B.bidder, SESSION(B.dateTime, INTERVAL '10' SECOND)
"""

from __future__ import annotations

from clonos_py import Instant, Record, Stream, count, session
from clonos_py.evaluation.nexmark.streams import Streams


class BidderSession(Record):
    bidder: int
    bid_count: int
    window_start: Instant
    window_end: Instant


def q11(events: Streams) -> Stream[BidderSession]:
    return (
        events.bid.key_by("bidder").window(session("10s")).aggregate(BidderSession, bid_count=count()).named("sessions")
    )
