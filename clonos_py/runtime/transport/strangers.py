"""Connections whose peer has not proven the secret: how long each may take, and how many may wait at once.

A connection that only waits costs less than 4 KiB. When too many wait, the one that has waited longest is closed: a
peer that knows the secret proves it within milliseconds, so that those that do not cannot keep it out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from clonos_py.runtime.transport.connection import Connection

_LOG = logging.getLogger("clonos_py.transport")
HANDSHAKE_S = 5.0
"""A new connection has so long to prove the secret."""
STRANGERS_MAX = 256
"""Accepted connections that may wait for their proof at once."""
_REPORT_S = 5.0


@dataclass(frozen=True)
class Overdue:
    """A connection to close."""

    connection: Connection
    reason: str


class Strangers:
    """Connections of one endpoint, in the order in which they were made."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._accepted: dict[int, tuple[Connection, float]] = {}
        self._asked: dict[int, tuple[Connection, float]] = {}

    def add(self, connection: Connection) -> None:
        """Its time begins."""
        waiting = self._accepted if connection.accepted else self._asked
        waiting[connection.number] = (connection, self._clock() + HANDSHAKE_S)

    def remove(self, connection: Connection) -> None:
        """It has proven the secret, or is closed."""
        self._accepted.pop(connection.number, None)
        self._asked.pop(connection.number, None)

    def wait_s(self) -> float | None:
        """How long until the next connection is overdue; None: none is waiting."""
        dues = [due for waiting in (self._accepted, self._asked) for _, due in list(waiting.values())[:1]]
        return max(0.0, min(dues) - self._clock()) if dues else None

    def overdue(self) -> list[Overdue]:
        """Connections that took too long, and those that must make room."""
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
    """Logs connections of strangers that were closed: one line at once, then one every ``_REPORT_S`` at most, with the
    number of connections, so that they cannot fill the disk."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._next = clock()
        self._silent = 0
        self.closed = 0
        """All of them so far."""

    def note(self, peer: str, reason: str) -> None:
        """A connection of a stranger was closed."""
        self.closed += 1
        now = self._clock()
        if now < self._next:
            self._silent += 1
            return
        more = f"; and {self._silent} more since the last report" if self._silent else ""
        _LOG.warning("closed the connection with %s: %s%s", peer, reason, more)
        self._next, self._silent = now + _REPORT_S, 0
