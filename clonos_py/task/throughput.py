"""How many rows a task takes in a given time, by what it took lately.

A Python function may take a microsecond for a row or a second. Reads of a source, and frames on their way, are cut so
that a task which calls such functions is back soon and that little waits before it: barriers stand in the same queue
as rows (buffer debloating, as in Flink's FLIP-183). What is measured decides live choices only; these are logged.
"""

from __future__ import annotations

READ_US = 50_000
"""A read covers rows for about so long."""
_KEPT = 0.5
"""The weight of all earlier samples beside a new one."""


class Throughput:
    """Of one task. A sample is the rows taken at once, and the time until the task is ready to take more; time in which
    it waits for receivers that have enough counts, too, so that they slow their senders down."""

    def __init__(self) -> None:
        self._rows = self._us = 0.0
        self._taken, self._taken_us = 0, 0

    @property
    def known(self) -> bool:
        return self._rows > 0

    def took(self, rows: int, now_us: int) -> None:
        """Rows have been taken, at the time when the task was ready for them."""
        self._taken, self._taken_us = rows, now_us

    def ready(self, now_us: int) -> None:
        """The task could take more now."""
        if self._taken:
            self._rows = self._rows * _KEPT + self._taken
            self._us = self._us * _KEPT + max(now_us - self._taken_us, 1)
            self._taken = 0

    def rows_within(self, us: int) -> int:
        """At least 1."""
        return max(1, int(self._rows * us / self._us)) if self.known else 1


class ReadSize:
    """The most rows of the next read: few at first, twice as many at most as were asked for last."""

    def __init__(self, throughput: Throughput) -> None:
        self._throughput, self._last = throughput, 1

    def next(self, most: int | None = None) -> int:
        if self._throughput.known:
            self._last = min(2 * self._last, self._throughput.rows_within(READ_US))
        if most is not None:
            self._last = min(self._last, most)
        return self._last
