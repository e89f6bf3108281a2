"""Query 14, calculation: bids in a price range in euros, with the time of day and a count of letters.

SELECT auction, bidder, 0.908 * price AS price,
       CASE WHEN HOUR(dateTime) >= 8 AND HOUR(dateTime) <= 18 THEN 'dayTime'
            WHEN HOUR(dateTime) <= 6 OR HOUR(dateTime) >= 20 THEN 'nightTime' ELSE 'otherTime' END AS bidTimeType,
       dateTime, extra, count_char(extra, 'c') AS c_counts
FROM bid WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000

``count_char`` is a user-defined function.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any

import numpy as np
import pyarrow as pa

from clonos_py import Instant, Record, Stream, apply, col, deterministic, when
from clonos_py.columns.views import texts
from clonos_py.evaluation.nexmark.streams import Streams


class TimedBid(Record):
    auction: int
    bidder: int
    price: Annotated[Decimal, pa.decimal128(23, 3)]
    bid_time_type: str
    date_time: Instant
    extra: str
    c_counts: int


@deterministic
def count_c(column: Any) -> Any:
    """The number of letters c in each text, counted in the bytes of the whole column at once."""
    bounds, letters = texts(column)
    found = np.append(letters == ord("c"), False)  # an empty text may begin after the last letter
    counts = np.add.reduceat(found, bounds[:-1], dtype=np.int64) if len(column) else bounds[:0]
    return pa.array(np.where(np.diff(bounds) > 0, counts, 0))


def q14(events: Streams) -> Stream[TimedBid]:
    price, hour = col("price") * Decimal("0.908"), col("date_time").hour()
    kind = when(hour.between(8, 18)).then("dayTime").when((hour <= 6) | (hour >= 20)).then("nightTime")
    return events.bid.filter((price > 1_000_000) & (price < 50_000_000)).select(
        TimedBid, price=price, bid_time_type=kind.otherwise("otherTime"), c_counts=apply(count_c, "extra", returns=int)
    )
