"""Query 10, log to a file system: all bids, in folders by day and minute.

CREATE TABLE nexmark_q10 (auction BIGINT, ..., dt STRING, hm STRING) PARTITIONED BY (dt, hm)
SELECT auction, bidder, price, dateTime, extra, DATE_FORMAT(dateTime, 'yyyy-MM-dd'), DATE_FORMAT(dateTime, 'HH:mm')
FROM bid

A file sink writes results to folders ``dt=.../hm=...``. A folder gets new files with each completed checkpoint.
"""

from __future__ import annotations

from clonos_py import Instant, Record, Stream, col
from clonos_py.evaluation.nexmark.queries.q15 import DAY, MINUTE
from clonos_py.evaluation.nexmark.streams import Streams

PARTITION_BY = ("dt", "hm")


class LoggedBid(Record):
    auction: int
    bidder: int
    price: int
    date_time: Instant
    extra: str
    dt: str
    hm: str


def q10(events: Streams) -> Stream[LoggedBid]:
    time = col("date_time")
    return events.bid.select(LoggedBid, dt=time.strftime(DAY), hm=time.strftime(MINUTE))
