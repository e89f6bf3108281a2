"""Query 7, highest bid: the highest bids of every 10 seconds.

SELECT B.auction, B.bidder, B.price, B.dateTime, B.extra FROM bid B
JOIN (SELECT MAX(price) AS maxprice, window_end AS dateTime
      FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '10' SECOND)) GROUP BY window_start, window_end) B1
ON B.price = B1.maxprice WHERE B.dateTime BETWEEN B1.dateTime - INTERVAL '10' SECOND AND B1.dateTime

A bid exactly at the end of a window belongs to the next window only. Before the shuffle, bids are dropped if their
batch has a higher bid in the same window. Only a few bids remain, and the result is the same.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from clonos_py import Instant, Record, Stream, col, tumbling
from clonos_py.evaluation.nexmark.queries.q0 import PlainBid
from clonos_py.evaluation.nexmark.streams import Streams

_WINDOW_US = 10_000_000


class Highest(Record):
    maxprice: int
    window_end: Instant


def highest_in_batch(bids: pa.RecordBatch) -> pa.RecordBatch:
    """The bids that are the highest of their window within their batch."""
    if not bids.num_rows:
        return bids
    price: np.ndarray[tuple[int], np.dtype[np.int64]] = np.asarray(bids.column("price"))
    window = np.asarray(bids.column("date_time")) // _WINDOW_US
    window -= window.min()
    highest = np.zeros(int(window.max()) + 1, dtype=np.int64)
    np.maximum.at(highest, window, price)
    return bids.filter(pa.array(price == highest[window]))


def q7(events: Streams) -> Stream[PlainBid]:
    bids = events.bid.select(PlainBid).map_batches(highest_in_batch, returns=PlainBid)
    highest = bids.window(tumbling("10s")).aggregate(Highest, maxprice=col("price").max()).named("highest")
    return bids.join(highest, on=("price", "maxprice"), within=tumbling("10s"), into=PlainBid).named("join")
