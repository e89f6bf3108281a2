"""Detects when latency is normal again after a failure: within 10% of the latency before, or no worse than it sometimes
was without a failure (CheckMate's recovery time). Pure.

Latency is read as totals of a histogram. The difference of two readings is a window. The worst latency of a window
counts, so that one slow channel of many is not averaged away. Processes report latency twice a second, so a window may
cover only some of them. So several consecutive windows must be good.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from statistics import median

from clonos_py.model.ids import TaskId
from clonos_py.observe.metrics import LatencyHistogram

TOLERANCE = 1.1
SLACK_US = 2_000
"""A smaller difference is noise."""
WINDOWS_GOOD = 4
"""The number of consecutive windows, about a second, that must be within the limit. A single window may cover only a
channel that the failure did not affect."""
_WINDOWS_BEFORE = 20


def limit_us(before: Collection[int]) -> float:
    """The highest normal latency, given the worst latencies of the windows before the failure (at least one).

    Latency that repeatedly exceeds the tolerance without a failure, for example with each checkpoint, is also normal.
    Latency that exceeded it only once, for example at the start of the job, is not.
    """
    return max(median(before) * TOLERANCE + SLACK_US, sorted(before)[-2:][0])


@dataclass
class _Streak:
    """The number of consecutive good windows since the replacement is effective, and the time of the first."""

    windows: int = 0
    began_us: int = 0


class Normality:
    """Tracks latency while tasks fail and recover."""

    def __init__(self) -> None:
        self._totals = LatencyHistogram()
        self._before: deque[int] = deque(maxlen=_WINDOWS_BEFORE)
        self._limit_us: float | None = None
        self._failed: dict[TaskId, _Streak | None] = {}

    def failed(self, task: TaskId) -> None:
        """Records a failure. The limit of normal latency stays fixed until every failed task has recovered."""
        if not self._failed:
            self._limit_us = limit_us(self._before) if self._before else None
        self._failed[task] = None

    def effective(self, task: TaskId) -> None:
        """The replacement has a first new effect. Windows count for its recovery from the next complete one on."""
        if task in self._failed:
            self._failed[task] = _Streak()

    def read(self, totals: Mapping[int, int], at_us: int) -> Iterator[tuple[TaskId, int]]:
        """Takes the newest totals, by bucket. Yields the tasks that have recovered, and the time since when."""
        newest = LatencyHistogram(totals)
        worst_us = newest.since(self._totals).percentile_us(100)
        self._totals = newest
        if worst_us is None:
            return
        if not self._failed:
            self._before.append(worst_us)
            return
        good = self._limit_us is not None and worst_us <= self._limit_us
        for task, streak in [*self._failed.items()]:
            if streak is None or not good:
                self._failed[task] = streak and _Streak()
                continue
            streak.began_us = streak.began_us if streak.windows else at_us
            streak.windows += 1
            if streak.windows == WINDOWS_GOOD:
                del self._failed[task]
                yield task, streak.began_us
