"""Estimates how many rows a task takes in a given time, from recent samples.

A Python function may take a microsecond or a second per row. So the sizes of reads and frames follow the task's
throughput: each step is short, and few rows are queued in front of barriers (buffer debloating, as in Flink's
FLIP-183). The measurements influence live choices only, and these are logged.

A call may also have a cost of its own, whatever its rows: a model, a request for many rows, a thousand columns. It is
told apart from the cost of a row by steps of different sizes. If all recent steps were of one size, one with twice as
many rows is tried.
"""

from __future__ import annotations

from typing import NamedTuple

READ_US = 50_000
"""A read holds rows for about this much processing time."""
_KEPT = 0.5
"""The weight of all earlier samples of a size, relative to a new one."""
_TRIED_AFTER, _TRIED_AGAIN = 4, 64
"""After so many steps of one size, and then again after so many, another size is tried."""
_SIZES = 3
"""So many sizes are kept, those that were measured last."""
_UNLIKE = 1.5
"""Steps tell the costs of calls and rows apart if one had so many times the rows of the other."""


class _Steps:
    """Steps of a similar size: weighted sums of rows and times, and the number of the last one."""

    def __init__(self) -> None:
        self.rows = self.us = self.weight = 0.0
        self.last = 0

    @property
    def mean(self) -> tuple[float, float]:
        """Rows, and time."""
        return self.rows / self.weight, self.us / self.weight

    def add(self, rows: int, us: int, number: int) -> None:
        self.rows = self.rows * _KEPT + rows
        self.us = self.us * _KEPT + us
        self.weight, self.last = self.weight * _KEPT + 1, number


class _Cost(NamedTuple):
    """``call_us`` of a step without rows, ``row_us`` more for each row."""

    call_us: float
    row_us: float


class Throughput:
    """The throughput of one task. A sample is the number of rows taken at once, and the time until the task can take
    more. Time under back-pressure counts, too, so that slow receivers slow down their senders."""

    def __init__(self) -> None:
        self._steps: dict[int, _Steps] = {}
        """By the binary logarithm of their rows."""
        self._newest = 0
        self._count = 0
        self._taken, self._taken_us = 0, 0
        self._at_once = 1
        """See ``rows_at_once``; it changes only with a sample, and is asked for more often."""

    @property
    def known(self) -> bool:
        return bool(self._steps)

    def took(self, rows: int, now_us: int) -> None:
        """Records that rows were taken at this time."""
        self._taken, self._taken_us = rows, now_us

    def ready(self, now_us: int) -> None:
        """Completes the sample: the task can take more rows now."""
        if self._taken:
            self._count, self._newest = self._count + 1, self._taken.bit_length()
            self._steps.setdefault(self._newest, _Steps()).add(
                self._taken, max(now_us - self._taken_us, 1), self._count
            )
            self._taken = 0
            if len(self._steps) > _SIZES:
                del self._steps[min(self._steps, key=lambda size: self._steps[size].last)]
            self._at_once = self._next_step()

    def rows_within(self, us: int) -> int:
        """The number of rows that the task takes in this time, at least 1, in steps of the newest size."""
        if not self.known:
            return 1
        newest = self._steps[self._newest]
        return max(1, int(newest.rows * us / newest.us))

    def rows_at_once(self) -> int:
        """The number of rows of the next step: of a short one, or of one that takes twice as long as its call if that
        is longer; now and then twice as many as the last, to tell call and rows apart. Never more than that."""
        return self._at_once

    def _next_step(self) -> int:
        most, other = 2 * self._steps[self._newest].mean[0], self._other
        if self._count - (other.last if other else 0) >= (_TRIED_AGAIN if other else _TRIED_AFTER):
            return int(most)
        cost = self._cost(other)
        within_us = max(READ_US - cost.call_us, cost.call_us)
        return max(1, int(most if cost.row_us * most <= within_us else within_us / cost.row_us))

    @property
    def _other(self) -> _Steps | None:
        """The steps of an unlike size that were measured last."""
        rows = self._steps[self._newest].mean[0]
        unlike = [s for s in self._steps.values() if not rows / _UNLIKE < s.mean[0] < rows * _UNLIKE]
        return max(unlike, key=lambda steps: steps.last, default=None)

    def _cost(self, other: _Steps | None) -> _Cost:
        rows, us = self._steps[self._newest].mean
        if other is None:
            return _Cost(0.0, us / rows)
        other_rows, other_us = other.mean
        row_us = min(max((us - other_us) / (rows - other_rows), 0.0), us / rows)
        return _Cost(us - row_us * rows, row_us)


class ReadSize:
    """The most rows of the next read. It begins at 1 and at most doubles from read to read."""

    def __init__(self, throughput: Throughput) -> None:
        self._throughput, self._last = throughput, 1

    def next(self, most: int | None = None) -> int:
        if self._throughput.known:
            self._last = min(2 * self._last, self._throughput.rows_at_once())
        if most is not None:
            self._last = min(self._last, most)
        return self._last
