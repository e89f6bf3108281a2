"""When latency is normal again after a failure: within 10% of what it was before (CheckMate's recovery time). Pure.

Latency is read as totals of a histogram; what came between two readings is a window. A window's worst latency counts,
so that one slow channel of many is not averaged away.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from statistics import median

from clonos_py.model.ids import TaskId
from clonos_py.observe.metrics import LatencyHistogram

TOLERANCE = 1.1
SLACK_US = 2_000
"""Below this, a difference is noise."""
_WINDOWS_BEFORE = 20


class Normality:
    """Watches latency while tasks fail and recover."""

    def __init__(self) -> None:
        self._totals = LatencyHistogram()
        self._before: deque[int] = deque(maxlen=_WINDOWS_BEFORE)
        self._limit_us: float | None = None
        self._failed: dict[TaskId, bool] = {}

    def failed(self, task: TaskId) -> None:
        """What was normal until now is remembered until every failed task has recovered."""
        if not self._failed:
            self._limit_us = median(self._before) * TOLERANCE + SLACK_US if self._before else None
        self._failed[task] = False

    def effective(self, task: TaskId) -> None:
        """The replacement is at work: from the next whole window on it may be found normal."""
        if task in self._failed:
            self._failed[task] = True

    def read(self, totals: Mapping[int, int]) -> Iterator[TaskId]:
        """Takes the newest totals, by bucket; gives the tasks that have recovered with this window."""
        newest = LatencyHistogram(totals)
        worst_us = newest.since(self._totals).percentile_us(100)
        self._totals = newest
        if worst_us is None:
            return
        if not self._failed:
            self._before.append(worst_us)
        elif self._limit_us is not None and worst_us <= self._limit_us:
            for task in [task for task, effective in self._failed.items() if effective]:
                del self._failed[task]
                yield task
