"""Processor times of processes on other nodes. Another process on the node reads them from its process table.

The call is asynchronous, so its result is returned by the next query.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple


class _Neighbour(NamedTuple):
    number: int
    actor: Any


class RemoteCpuTimes:
    """Processor times for one job. On each node it calls the process whose message came last."""

    def __init__(self) -> None:
        self._neighbours: dict[str, _Neighbour] = {}
        self._results: dict[int, int] = {}

    def received(self, number: int, node: str, actor: Any) -> None:
        """A message of a process has arrived. An earlier result for it is out of date."""
        self._neighbours[node] = _Neighbour(number, actor)
        self._results.pop(number, None)

    def cpu_us(self, number: int, pid: int, node: str) -> int | None:
        """Returns the result of the last call, once. If there is none, returns None and starts a call, unless no other
        process on the node has sent a message."""
        if (result := self._results.pop(number, None)) is not None:
            return result
        neighbour = self._neighbours.get(node)
        if neighbour is not None and neighbour.number != number:
            neighbour.actor.cpu_us.remote(pid).future().add_done_callback(self._store(number))
        return None

    def _store(self, number: int) -> Callable[[Any], None]:
        """The callback for a result. A thread of Ray calls it."""

        def store(future: Any) -> None:
            with suppress(Exception):  # the neighbour has died
                if (result := future.result()) is not None:
                    self._results[number] = result

        return store
