"""Query 18, last bid: the last bid of each bidder for each auction.

SELECT auction, bidder, price, channel, url, dateTime, extra
FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY dateTime DESC) AS rank_number FROM bid)
WHERE rank_number <= 1
"""

from __future__ import annotations

from clonos_py import Table, col
from clonos_py.evaluation.nexmark.events import Bid
from clonos_py.evaluation.nexmark.streams import Streams


def q18(events: Streams) -> Table[Bid]:
    return events.bid.key_by("bidder", "auction").top(1, by=col("date_time").desc(), into=Bid).named("last")
