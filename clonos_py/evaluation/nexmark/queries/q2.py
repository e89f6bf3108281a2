"""Query 2, selection: bids for every 123rd auction.

SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0
"""

from __future__ import annotations

from clonos_py import Record, Stream, col
from clonos_py.evaluation.nexmark.streams import Streams


class Selected(Record):
    auction: int
    price: int


def q2(events: Streams) -> Stream[Selected]:
    return events.bid.filter(col("auction") % 123 == 0).select(Selected)
