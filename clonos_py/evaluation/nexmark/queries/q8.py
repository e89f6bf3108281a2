"""Query 8, monitor new users: people who registered and opened an auction within the same 10 seconds.

SELECT P.id, P.name, P.starttime
FROM (SELECT id, name, window_start AS starttime, window_end AS endtime
      FROM TABLE(TUMBLE(TABLE person, DESCRIPTOR(dateTime), INTERVAL '10' SECOND))
      GROUP BY id, name, window_start, window_end) P
JOIN (SELECT seller, window_start AS starttime, window_end AS endtime
      FROM TABLE(TUMBLE(TABLE auction, DESCRIPTOR(dateTime), INTERVAL '10' SECOND))
      GROUP BY seller, window_start, window_end) A
ON P.id = A.seller AND P.starttime = A.starttime AND P.endtime = A.endtime

People register once, so only the sellers must be deduplicated.
"""

from __future__ import annotations

from clonos_py import Instant, Record, Stream, count, tumbling
from clonos_py.evaluation.nexmark.streams import Streams


class Seller(Record):
    seller: int
    window_end: Instant
    auctions: int


class NewSeller(Record):
    id: int
    name: str
    window_start: Instant


def q8(events: Streams) -> Stream[NewSeller]:
    sellers = (
        events.auction.key_by("seller").window(tumbling("10s")).aggregate(Seller, auctions=count()).named("sellers")
    )
    return events.person.join(sellers, on=("id", "seller"), within=tumbling("10s"), into=NewSeller).named("join")
