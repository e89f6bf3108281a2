"""Query 21, channel id: bids with the id of their channel, from a fixed list or from the URL.

SELECT auction, bidder, price, channel,
       CASE WHEN lower(channel) = 'apple' THEN '0' WHEN lower(channel) = 'google' THEN '1'
            WHEN lower(channel) = 'facebook' THEN '2' WHEN lower(channel) = 'baidu' THEN '3'
            ELSE REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2) END AS channel_id
FROM bid WHERE REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2) IS NOT NULL
      OR lower(channel) IN ('apple', 'google', 'facebook', 'baidu')

The condition holds exactly if channel_id is not null.
"""

from __future__ import annotations

from clonos_py import Record, Stream, col, when
from clonos_py.evaluation.nexmark.streams import Streams


class ChannelBid(Record):
    auction: int
    bidder: int
    price: int
    channel: str
    channel_id: str | None


def q21(events: Streams) -> Stream[ChannelBid]:
    name = col("channel").lower()
    known = when(name == "apple").then("0").when(name == "google").then("1")
    known = known.when(name == "facebook").then("2").when(name == "baidu").then("3")
    channel_id = known.otherwise(col("url").extract("(&|^)channel_id=([^&]*)", 2))
    return events.bid.select(ChannelBid, channel_id=channel_id).filter(col("channel_id").is_not_null())
