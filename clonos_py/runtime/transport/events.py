"""The events that an endpoint returns to its owner."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa


class Accepted(NamedTuple):
    """A peer has connected, has proven the secret and has sent ``hello``."""

    connection: int
    hello: bytes


class PeerConnected(NamedTuple):
    """A requested connection is open, and the peer has proven the secret."""

    connection: int


class Received(NamedTuple):
    """A frame arrived. ``body`` is None if it is empty."""

    connection: int
    header: bytes
    body: pa.Buffer | None


class QueueEmptied(NamedTuple):
    """All queued bytes of a connection have been passed to the system, after some had to wait."""

    connection: int


class Closed(NamedTuple):
    """A connection is gone: the peer closed it, it broke, or the peer broke a rule. There is no such event for
    connections that the owner closed."""

    connection: int
    reason: str


TransportEvent = Accepted | PeerConnected | Received | QueueEmptied | Closed
