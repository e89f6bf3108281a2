"""The three kinds of Nexmark events.

Prices are whole cents in an int64, as in the original, so that the generator and the queries use no decimals on the hot
path. Times are microseconds UTC. Mean sizes are 200 bytes for a person, 500 for an auction and 100 for a bid; ``extra``
pads each event to its size.
"""

from __future__ import annotations

from clonos_py.model.record import Instant, Record


class Person(Record):
    """A person registers."""

    id: int
    name: str
    email_address: str
    credit_card: str
    city: str
    state: str
    date_time: Instant
    extra: str


class Auction(Record):
    """A person puts an item up for auction."""

    id: int
    item_name: str
    description: str
    initial_bid: int
    reserve: int
    date_time: Instant
    expires: Instant
    seller: int
    category: int
    extra: str


class Bid(Record):
    """A person bids for an item."""

    auction: int
    bidder: int
    price: int
    channel: str
    url: str
    date_time: Instant
    extra: str
