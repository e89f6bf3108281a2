"""The input of a query: the three streams of events."""

from __future__ import annotations

from typing import NamedTuple

from clonos_py import Stream
from clonos_py.evaluation.nexmark.events import Auction, Bid, Person


class Streams(NamedTuple):
    """The streams, in the order of the source's ports."""

    person: Stream[Person]
    auction: Stream[Auction]
    bid: Stream[Bid]
