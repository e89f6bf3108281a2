"""Query 1, currency conversion: every bid in euros.

SELECT auction, bidder, 0.908 * price AS price, dateTime, extra FROM bid
"""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

import pyarrow as pa

from clonos_py import Instant, Record, Stream, col
from clonos_py.evaluation.nexmark.streams import Streams


class EuroBid(Record):
    auction: int
    bidder: int
    price: Annotated[Decimal, pa.decimal128(23, 3)]
    date_time: Instant
    extra: str


def q1(events: Streams) -> Stream[EuroBid]:
    return events.bid.select(EuroBid, price=col("price") * Decimal("0.908"))
