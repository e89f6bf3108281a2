"""The connections of a server whose peers have not done their part yet, ordered by how long each has waited.

A server that strangers can reach limits how many of these it keeps. Above the limit those that have waited longest are
closed. A peer that wants something does its part within milliseconds, so peers that only connect cannot keep it out.
"""

from __future__ import annotations

from collections.abc import Hashable
from itertools import islice, takewhile
from typing import Generic, TypeVar

C = TypeVar("C", bound=Hashable)


class WaitingConnections(Generic[C]):
    """Waiting connections. Times are seconds of any steady clock, and never decrease from call to call."""

    def __init__(self) -> None:
        self._since: dict[C, float] = {}
        """By connection: since when it has waited. The longest comes first."""

    def __len__(self) -> int:
        return len(self._since)

    def add(self, connection: C, now_s: float) -> None:
        """The connection waits from now on, even if it had waited before."""
        self._since.pop(connection, None)
        self._since[connection] = now_s

    def remove(self, connection: C) -> None:
        """The peer has done its part, or the connection is closed."""
        self._since.pop(connection, None)

    @property
    def longest_since_s(self) -> float | None:
        """Since when the first one has waited; None if there is none."""
        return next(iter(self._since.values()), None)

    def overdue(self, limit_s: float, now_s: float) -> list[C]:
        """Those that have waited for ``limit_s`` or longer."""
        return [connection for connection, _ in takewhile(lambda item: item[1] + limit_s <= now_s, self._since.items())]

    def surplus(self, connections_max: int, others: int = 0) -> list[C]:
        """Those to close so that at most ``connections_max`` stay, beside ``others`` that do not wait and are kept."""
        return list(islice(self._since, max(0, len(self._since) + others - connections_max)))
