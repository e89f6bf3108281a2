"""What an endpoint tells its owner."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa


class Accepted(NamedTuple):
    """A peer connected, proved the secret and said ``hello``."""

    connection: int
    hello: bytes


class PeerConnected(NamedTuple):
    """The connection asked for is open, and the peer has proved the secret too."""

    connection: int


class Received(NamedTuple):
    """A frame arrived. ``body`` is None if it is empty."""

    connection: int
    header: bytes
    body: pa.Buffer | None


class QueueEmptied(NamedTuple):
    """All that was queued on the connection has been handed to the system, after it once had to wait."""

    connection: int


class Closed(NamedTuple):
    """The connection is gone: the peer's doing or a rule it broke. Not told of connections that the owner closed."""

    connection: int
    reason: str


TransportEvent = Accepted | PeerConnected | Received | QueueEmptied | Closed
