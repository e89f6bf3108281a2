"""Which process watches which on nodes other than the coordinator's, so that deaths there are known at once, too.

Each process is watched by one in another host process of its node, as soon as there is one. If the watching one is
gone, another takes over. A death that nobody watches is known when Ray says so.
"""

from __future__ import annotations

from typing import NamedTuple


class NeighbourWatch(NamedTuple):
    """The process ``watcher`` has to watch the process ``watched``."""

    watcher: int
    watched: int


class Neighbours:
    """The processes of one job on other nodes."""

    def __init__(self) -> None:
        self._places: dict[int, tuple[str, int]] = {}
        """By process: its node and its host process."""
        self._watchers: dict[int, int] = {}
        """By process: the one that watches it."""

    def add(self, number: int, node: str, host_process: int) -> list[NeighbourWatch]:
        """A process has begun."""
        self._places[number] = node, host_process
        self._watchers.pop(number, None)
        return self._assigned()

    def remove(self, number: int) -> list[NeighbourWatch]:
        """A process is gone."""
        if self._places.pop(number, None) is None:
            return []
        self._watchers = {
            watched: watcher for watched, watcher in self._watchers.items() if number not in (watched, watcher)
        }
        return self._assigned()

    def _assigned(self) -> list[NeighbourWatch]:
        """Gives each process without a watcher one, if there is one."""
        found = []
        for watched, (node, host_process) in self._places.items():
            if watched in self._watchers:
                continue
            others = [number for number, (at, host) in self._places.items() if at == node and host != host_process]
            if others:
                self._watchers[watched] = others[-1]
                found.append(NeighbourWatch(others[-1], watched))
        return found
