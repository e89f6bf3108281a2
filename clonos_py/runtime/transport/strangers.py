"""Limits for connections whose peer has not proven the secret: a time for each, and a number that may wait at once.

A waiting connection costs less than 4 KiB. When too many wait, the one that has waited longest is closed. A peer with
the secret proves it within milliseconds, so peers without it cannot keep that peer out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

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
        self._accepted: dict[int, tuple[Connection, float]] = {}
        self._asked: dict[int, tuple[Connection, float]] = {}

    def add(self, connection: Connection) -> None:
        """Adds a connection. Its time limit begins."""
        waiting = self._accepted if connection.accepted else self._asked
        waiting[connection.number] = (connection, self._clock() + HANDSHAKE_S)

    def remove(self, connection: Connection) -> None:
        """Removes a connection that has proven the secret or is closed."""
        self._accepted.pop(connection.number, None)
        self._asked.pop(connection.number, None)

    def wait_s(self) -> float | None:
        """The time until the next connection is overdue; None if none is waiting."""
        dues = [due for waiting in (self._accepted, self._asked) for _, due in list(waiting.values())[:1]]
        return max(0.0, min(dues) - self._clock()) if dues else None

    def overdue(self) -> list[Overdue]:
        """The connections to close: those past their time limit, and the oldest ones above the maximum number."""
        if not self._accepted and not self._asked:
            return []
        now = self._clock()
        late = [
            Overdue(connection, f"{connection.peer} did not prove the secret in time")
            for waiting in (self._accepted, self._asked)
            for connection, due in waiting.values()
            if due <= now
        ]
        surplus = list(self._accepted.values())[: max(0, len(self._accepted) - STRANGERS_MAX)]
        reason = f"more than {STRANGERS_MAX} connections wait to prove the secret, and it has waited longest"
        return late + [Overdue(connection, reason) for connection, due in surplus if due > now]


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
