"""Query 22, URL directories: the directories in the URL of each bid.

SELECT auction, bidder, price, channel,
       SPLIT_INDEX(url, '/', 3) AS dir1, SPLIT_INDEX(url, '/', 4) AS dir2, SPLIT_INDEX(url, '/', 5) AS dir3
FROM bid
"""

from __future__ import annotations

from clonos_py import Record, Stream, col
from clonos_py.evaluation.nexmark.streams import Streams


class PageBid(Record):
    auction: int
    bidder: int
    price: int
    channel: str
    dir1: str | None
    dir2: str | None
    dir3: str | None


def q22(events: Streams) -> Stream[PageBid]:
    folders = {f"dir{number}": col("url").split_part("/", number + 2) for number in (1, 2, 3)}
    return events.bid.select(PageBid, **folders)
