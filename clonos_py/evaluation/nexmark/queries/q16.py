"""Query 16, channel statistics: the numbers of bids, bidders and auctions per channel, day and price level.

SELECT channel, DATE_FORMAT(dateTime, 'yyyy-MM-dd') AS `day`, max(DATE_FORMAT(dateTime, 'HH:mm')) AS `minute`,
       (the counts of query 15)
FROM bid GROUP BY channel, DATE_FORMAT(dateTime, 'yyyy-MM-dd')
"""

from __future__ import annotations

from clonos_py import Record, Table, col
from clonos_py.evaluation.nexmark.queries.q15 import DAY, MINUTE, statistics
from clonos_py.evaluation.nexmark.streams import Streams


class ChannelReport(Record):
    channel: str
    day: str
    minute: str
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


def q16(events: Streams) -> Table[ChannelReport]:
    channels = events.bid.key_by("channel", day=col("date_time").strftime(DAY))
    latest = col("date_time").strftime(MINUTE).max()
    return channels.aggregate(ChannelReport, minute=latest, **statistics()).named("report")
