"""What a process counts for people, told with every heartbeat's answer."""

from __future__ import annotations

from typing import Any

from clonos_py.runtime.ray.task_loop import now_us
from clonos_py.task.events import Observed


class Counters:
    """Sums of what the task observed. Used by the link thread only."""

    def __init__(self) -> None:
        self._events = 0
        self._rows_out = 0
        self._counts: dict[str, int] = {}
        self._latencies_us: list[int] = []

    def observe(self, event: Observed) -> None:
        self._events += event.events
        self._rows_out += event.rows_out
        for name, amount in event.counts.items():
            self._counts[name] = self._counts.get(name, 0) + amount
        if event.marker_us:
            self._latencies_us.append(now_us() - event.marker_us)

    def report(self) -> dict[str, Any]:
        """Totals since the process began, and the latencies since the last report."""
        latencies, self._latencies_us = self._latencies_us, []
        return {
            "events": self._events,
            "rows_out": self._rows_out,
            "counts": dict(self._counts),
            "latencies_us": latencies,
        }
