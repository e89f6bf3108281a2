"""When latency is normal again after a failure: within 10% of what it was before, or no worse than it was at
times without one (CheckMate's recovery time). Pure.

Latency is read as totals of a histogram; what came between two readings is a window. A window's worst latency counts,
so that one slow channel of many is not averaged away. Processes tell theirs twice a second, so that a window may have
seen only some of them: several in a row must be good.
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
"""Below this, a difference is noise."""
WINDOWS_GOOD = 4
"""So many windows in a row, a second, are within the limit: one may have seen a channel only that was never
disturbed."""
_WINDOWS_BEFORE = 20


def limit_us(before: Collection[int]) -> float:
    """The worst latency that is normal, from that of windows before (at least one).

    Latency that comes and goes by more than the tolerance without any failure, with each checkpoint say, is normal as
    well; what came only once, with the start of the job say, is not.
    """
    return max(median(before) * TOLERANCE + SLACK_US, sorted(before)[-2:][0])


@dataclass
class _Streak:
    """Good windows in a row since the replacement is at work, and when the first of them was."""

    windows: int = 0
    began_us: int = 0


class Normality:
    """Watches latency while tasks fail and recover."""

    def __init__(self) -> None:
        self._totals = LatencyHistogram()
        self._before: deque[int] = deque(maxlen=_WINDOWS_BEFORE)
        self._limit_us: float | None = None
        self._failed: dict[TaskId, _Streak | None] = {}

    def failed(self, task: TaskId) -> None:
        """What was normal until now is remembered until every failed task has recovered."""
        if not self._failed:
            self._limit_us = limit_us(self._before) if self._before else None
        self._failed[task] = None

    def effective(self, task: TaskId) -> None:
        """The replacement is at work: from the next whole window on it may be found normal."""
        if task in self._failed:
            self._failed[task] = _Streak()

    def read(self, totals: Mapping[int, int], at_us: int) -> Iterator[tuple[TaskId, int]]:
        """Takes the newest totals, by bucket; gives the tasks that are found to have recovered, and since when."""
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
