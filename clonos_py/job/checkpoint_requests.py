"""Counts what checkpoints request of an object store, where requests are paid for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from clonos_py.checkpoint.store import requests_since


class CheckpointRequests:
    """The requests since the last completed checkpoint: those of the tasks with their snapshots, and those of the
    coordinator."""

    def __init__(self) -> None:
        self._of_tasks: Counter[str] = Counter()
        self._now: Mapping[str, int] = {}
        self._before: Mapping[str, int] = {}

    def by_task(self, requests: Mapping[str, int]) -> None:
        """A snapshot has taken these requests."""
        self._of_tasks.update(requests)

    def by_coordinator(self, total: Mapping[str, int]) -> None:
        """The coordinator has sent these requests since it started."""
        self._now = total

    def take(self) -> dict[str, int]:
        """By operation: the requests since the last call."""
        found = self._of_tasks + Counter(requests_since(self._before, self._now))
        self._of_tasks, self._before = Counter(), self._now
        return dict(sorted(found.items()))
