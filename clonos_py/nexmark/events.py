"""The three kinds of Nexmark events.

Prices are whole cents in an int64, as in the original: the generator and the queries stay clear of decimals on the
hot path. Times are microseconds UTC. Sizes average 200 bytes for a person, 500 for an auction, 100 for a bid, with
``extra`` filling each up.
"""

from __future__ import annotations

from clonos_py.model.record import Instant, Record


class Person(Record):
    """Somebody registers."""

    id: int
    name: str
    email_address: str
    credit_card: str
    city: str
    state: str
    date_time: Instant
    extra: str


class Auction(Record):
    """Somebody puts an item up for auction."""

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
    """Somebody bids for an item."""

    auction: int
    bidder: int
    price: int
    channel: str
    url: str
    date_time: Instant
    extra: str
