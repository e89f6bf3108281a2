"""Estimates how many rows a task takes in a given time, from recent samples.

A Python function may take a microsecond or a second per row. So the sizes of reads and frames follow the task's
throughput: each step is short, and few rows are queued in front of barriers (buffer debloating, as in Flink's
FLIP-183). The measurements influence live choices only, and these are logged.
"""

from __future__ import annotations

READ_US = 50_000
"""A read holds rows for about this much processing time."""
_KEPT = 0.5
"""The weight of all earlier samples, relative to a new one."""


class Throughput:
    """The throughput of one task. A sample is the number of rows taken at once, and the time until the task can take
    more. Time under back-pressure counts, too, so that slow receivers slow down their senders."""

    def __init__(self) -> None:
        self._rows = self._us = 0.0
        self._taken, self._taken_us = 0, 0

    @property
    def known(self) -> bool:
        return self._rows > 0

    def took(self, rows: int, now_us: int) -> None:
        """Records that rows were taken at this time."""
        self._taken, self._taken_us = rows, now_us

    def ready(self, now_us: int) -> None:
        """Completes the sample: the task can take more rows now."""
        if self._taken:
            self._rows = self._rows * _KEPT + self._taken
            self._us = self._us * _KEPT + max(now_us - self._taken_us, 1)
            self._taken = 0

    def rows_within(self, us: int) -> int:
        """The number of rows that the task takes in this time, at least 1."""
        return max(1, int(self._rows * us / self._us)) if self.known else 1


class ReadSize:
    """The most rows of the next read. It begins at 1 and at most doubles from read to read."""

    def __init__(self, throughput: Throughput) -> None:
        self._throughput, self._last = throughput, 1

    def next(self, most: int | None = None) -> int:
        if self._throughput.known:
            self._last = min(2 * self._last, self._throughput.rows_within(READ_US))
        if most is not None:
            self._last = min(self._last, most)
        return self._last
