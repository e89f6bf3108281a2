"""Limits for connections whose peer has not proven the secret: a time for each, and a number that may wait at once.

A waiting connection costs less than 4 KiB. When too many wait, the one that has waited longest is closed
(``model/waiting_connections.py``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from clonos_py.model.waiting_connections import WaitingConnections
from clonos_py.runtime.transport.connection import Connection

_LOG = logging.getLogger("clonos_py.transport")
HANDSHAKE_S = 5.0
"""The time in which a new connection must prove the secret."""
STRANGERS_MAX = 256
"""Accepted connections that may wait for their proof at once."""
_REPORT_S = 5.0


@dataclass(frozen=True)
class Overdue:
    """A connection to close."""

    connection: Connection
    reason: str


class Strangers:
    """The unproven connections of one endpoint, in the order of their creation."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._accepted, self._asked = WaitingConnections[Connection](), WaitingConnections[Connection]()

    def add(self, connection: Connection) -> None:
        """Adds a connection. Its time limit begins."""
        (self._accepted if connection.accepted else self._asked).add(connection, self._clock())

    def remove(self, connection: Connection) -> None:
        """Removes a connection that has proven the secret or is closed."""
        self._accepted.remove(connection)
        self._asked.remove(connection)

    def wait_s(self) -> float | None:
        """The time until the next connection is overdue; None if none is waiting."""
        since = [waiting.longest_since_s for waiting in (self._accepted, self._asked)]
        begun = min((begun_s for begun_s in since if begun_s is not None), default=None)
        return None if begun is None else max(0.0, begun + HANDSHAKE_S - self._clock())

    def overdue(self) -> list[Overdue]:
        """The connections to close: those past their time limit, and the oldest ones above the maximum number."""
        if not self._accepted and not self._asked:
            return []
        now_s = self._clock()
        late, late_asked = self._accepted.overdue(HANDSHAKE_S, now_s), self._asked.overdue(HANDSHAKE_S, now_s)
        surplus = self._accepted.surplus(STRANGERS_MAX)[len(late) :]
        reason = f"more than {STRANGERS_MAX} connections wait to prove the secret, and it has waited longest"
        return [
            *(
                Overdue(connection, f"{connection.peer} did not prove the secret in time")
                for connection in late + late_asked
            ),
            *(Overdue(connection, reason) for connection in surplus),
        ]


class RefusalLog:
    """Logs closed connections of strangers: one line at once, then at most one every ``_REPORT_S`` with the number of
    connections, so that strangers cannot fill the disk."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._next = clock()
        self._silent = 0
        self.closed = 0
        """The number of all closed connections so far."""

    def note(self, peer: str, reason: str) -> None:
        """Records a closed connection of a stranger."""
        self.closed += 1
        now = self._clock()
        if now < self._next:
            self._silent += 1
            return
        more = f"; and {self._silent} more since the last report" if self._silent else ""
        _LOG.warning("closed the connection with %s: %s%s", peer, reason, more)
        self._next, self._silent = now + _REPORT_S, 0
