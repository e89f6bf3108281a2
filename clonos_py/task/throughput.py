"""Estimates how many rows a task takes in a given time, from recent samples.

A Python function may take a microsecond or a second per row. So the sizes of reads and frames follow the task's
throughput: each step is short, and few rows are queued in front of barriers (buffer debloating, as in Flink's
FLIP-183). The measurements influence live choices only, and these are logged.

A call may also have a cost of its own, whatever its rows: a model, a request for many rows, a thousand columns. It is
told apart from the cost of a row by steps of different sizes. If all recent steps were of one size, one with twice as
many rows is tried: soon after a single step has taken long, since that may have been the machine, and then more and
more rarely.
"""

from __future__ import annotations

from typing import NamedTuple

READ_US = 50_000
"""A read holds rows for about this much processing time."""
_KEPT = 0.5
"""The weight of all earlier samples of a size, relative to a new one."""
_TRIED_AFTER, _TRIED_AFTER_MAX = 4, 64
"""After so many steps of one size another size is tried; then after twice as many, up to the maximum."""
_FALL = 4
"""If the size falls by this factor at once, another one is tried soon."""
_SIZES = 3
"""So many sizes are kept, those that were measured last."""
_UNLIKE = 1.5
"""Steps tell the costs of calls and rows apart if one had so many times the rows of the other."""


class _Sample:
    """Rows that were taken at ``taken_us``, and what happened since."""

    __slots__ = ("full", "held_back_us", "rows", "taken_us", "worked_us")

    def __init__(self, rows: int, taken_us: int) -> None:
        self.rows, self.taken_us = rows, taken_us
        self.worked_us = self.held_back_us = 0
        self.full = False

    def us(self, now_us: int) -> int:
        """The time that the task has worked, until it can take more at ``now_us``. In a world of virtual time a step
        takes none."""
        if self.full:
            return now_us - self.taken_us
        return self.worked_us or (self.held_back_us or now_us) - self.taken_us


class _Steps:
    """Steps of a similar size: weighted sums of rows, of times of work and of times until the next step, and the number
    of the last one."""

    def __init__(self) -> None:
        self.rows = self.us = self.until_next_us = self.weight = 0.0
        self.last = 0

    @property
    def mean(self) -> tuple[float, float]:
        """Rows, and time of work."""
        return self.rows / self.weight, self.us / self.weight

    def add(self, rows: int, us: int, until_next_us: int, number: int) -> None:
        self.rows = self.rows * _KEPT + rows
        self.us = self.us * _KEPT + us
        self.until_next_us = self.until_next_us * _KEPT + until_next_us
        self.weight, self.last = self.weight * _KEPT + 1, number


class _Cost(NamedTuple):
    """``call_us`` of a step without rows, ``row_us`` more for each row."""

    call_us: float
    row_us: float


class Throughput:
    """The throughput of one task. A sample is the number of rows taken at once, and the time until the task can take
    more. Time under back-pressure counts for the rows that should wait, so that slow receivers slow down their senders.
    It does not count for the size of steps, nor does what else a thread does that several tasks share."""

    def __init__(self) -> None:
        self._steps: dict[int, _Steps] = {}
        """By the binary logarithm of their rows."""
        self._newest = 0
        self._count = 0
        self._sample: _Sample | None = None
        self._tried_after, self._trying = _TRIED_AFTER, False
        self._at_once = 1
        """See ``rows_at_once``; it changes only with a sample, and is asked for more often."""

    @property
    def known(self) -> bool:
        return bool(self._steps)

    def took(self, rows: int, now_us: int) -> None:
        """Records that rows were taken at this time."""
        self._sample = _Sample(rows, now_us) if rows else None

    def worked(self, us: int) -> None:
        """A step has taken so long. What follows until the next one is no work of the task."""
        if self._sample is not None and not self._sample.worked_us:
            self._sample.worked_us = us

    def held_back(self, now_us: int, full: bool) -> None:
        """The task may not take more: its operators are full, or else its receivers are."""
        if self._sample is not None:
            self._sample.full = self._sample.full or full
            self._sample.held_back_us = self._sample.held_back_us or now_us

    def ready(self, now_us: int) -> None:
        """Completes the sample: the task can take more rows now."""
        if (sample := self._sample) is not None:
            self._sample = None
            self._count, self._newest = self._count + 1, sample.rows.bit_length()
            us, until_next_us = sample.us(now_us), now_us - sample.taken_us
            self._steps.setdefault(self._newest, _Steps()).add(
                sample.rows, max(us, 1), max(until_next_us, 1), self._count
            )
            if len(self._steps) > _SIZES:
                del self._steps[min(self._steps, key=lambda size: self._steps[size].last)]
            self._at_once = self._next_step()

    def rows_within(self, us: int) -> int:
        """The number of rows that the task takes in this time, at least 1, in steps of the newest size."""
        if not self.known:
            return 1
        newest = self._steps[self._newest]
        return max(1, int(newest.rows * us / newest.until_next_us))

    def rows_at_once(self) -> int:
        """The number of rows of the next step: of a short one, or of one that takes twice as long as its call if that
        is longer; now and then more, to tell call and rows apart. Never more than a short step has even if calls cost
        nothing, or twice as many as the last one."""
        return self._at_once

    def _next_step(self) -> int:
        newest, other = self._steps[self._newest], self._other
        rows, us = newest.mean
        short = READ_US * rows / us
        if self._count - (other.last if other else 0) >= self._tried_after:
            self._trying = True
            return int(max(2 * rows, short))
        if self._trying:
            self._trying, self._tried_after = False, min(2 * self._tried_after, _TRIED_AFTER_MAX)
        cost = self._cost(other)
        within_us = max(READ_US - cost.call_us, cost.call_us)
        found = 2 * rows if cost.row_us * 2 * rows <= within_us else within_us / cost.row_us
        at_once = max(1, int(max(found, short)))
        if at_once * _FALL <= rows:
            self._tried_after = _TRIED_AFTER
        return at_once

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
