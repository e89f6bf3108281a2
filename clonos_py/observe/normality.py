"""Finds when latency is normal again after a failure: within 10% of that before, or no worse than it sometimes was
without a failure (CheckMate's recovery time). Pure.

Latency is measured in windows of a quarter of a second. The worst latency of a window counts, so that one slow channel
of many is not averaged away. A single window may cover only a channel that the failure did not affect, so several in a
row must be good. If a task fails before the job has recovered from earlier failures, normal latency is that before the
first of these.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from clonos_py.model.ids import TaskId
from clonos_py.observe.metrics import LATENCY_WINDOW_US

TOLERANCE = 1.1
SLACK_US = 2_000
"""A smaller difference is noise."""
WINDOWS_GOOD = 4
"""The number of consecutive windows, about a second, that must be within the limit."""
_BEFORE_US = 5_000_000
_WAITED_US = 600_000_000
"""A task whose recovery takes longer is not followed any more: its sinks may get no markers."""
REPORTED_US = 1_000_000
"""When the processes of a running job have reported a window, since its end. They report twice a second."""


class LatencyWindow(NamedTuple):
    """The worst latency of the markers that arrived from ``at_us`` on."""

    at_us: int
    worst_us: int


class Healing(NamedTuple):
    """``normal_us``: the latency before a failure (the median of the windows' worst). ``worst_us``: the highest latency
    until it was normal again. ``recovered_us``: when it was. None: not known, or not within the windows."""

    normal_us: float | None
    worst_us: int | None
    recovered_us: int | None


def limit_us(before: Collection[int]) -> float:
    """The highest normal latency, given the worst latencies of the windows before the failure (at least one).

    Latency that repeatedly exceeds the tolerance without a failure, for example with each checkpoint, is also normal.
    Latency that exceeded it only once, for example at the start of the job, is not.
    """
    return max(median(before) * TOLERANCE + SLACK_US, sorted(before)[-2:][0])


def healings(failures: Sequence[tuple[int, int | None]], windows: Sequence[LatencyWindow]) -> Iterator[Healing]:
    """The recovery from each failure. ``failures``: (time of failure, time of first new effect), sorted by time;
    ``windows``: sorted by time."""
    begin_us: int | None = None
    recovered_us: int | None = None
    for failed_us, effect_us in failures:
        if begin_us is None or (recovered_us is not None and recovered_us <= failed_us):
            begin_us = failed_us
        before = [w.worst_us for w in windows if begin_us - _BEFORE_US <= w.at_us <= begin_us - LATENCY_WINDOW_US]
        normal_us = median(before) if before else None
        recovered_us = _recovered(limit_us(before), effect_us, windows) if before else None
        during = [w.worst_us for w in windows if failed_us <= w.at_us and w.at_us <= (recovered_us or w.at_us)]
        yield Healing(normal_us, max(during, default=None), recovered_us)


def _recovered(most_us: float, effect_us: int | None, windows: Sequence[LatencyWindow]) -> int | None:
    if effect_us is None:
        return None
    later = [w for w in windows if w.at_us >= effect_us]
    for first in range(len(later) - WINDOWS_GOOD + 1):
        if all(w.worst_us <= most_us for w in later[first : first + WINDOWS_GOOD]):
            return later[first].at_us
    return None


class Normality:
    """Follows the latency of a running job while tasks fail and recover."""

    def __init__(self) -> None:
        self._windows: dict[int, int] = {}
        """By number: the highest latency of the windows that processes have reported."""
        self._failures: list[tuple[TaskId, int, int | None]] = []
        """(task, time of failure, time of first new effect), until each of these tasks has recovered."""
        self._recovered: set[int] = set()
        """The indexes of those that have recovered, or have failed again before that."""

    def failed(self, task: TaskId, at_us: int) -> None:
        self._recovered |= {index for index, (failed, _, _) in enumerate(self._failures) if failed == task}
        self._failures.append((task, at_us, None))

    def effective(self, task: TaskId, at_us: int) -> None:
        """The replacement has a first new effect."""
        self._failures = [
            (failed, failed_us, at_us if failed == task and effect_us is None else effect_us)
            for failed, failed_us, effect_us in self._failures
        ]

    def report(self, windows: Mapping[int, int]) -> None:
        """A process has reported the worst latencies of its last windows, by number."""
        for number, worst_us in windows.items():
            self._windows[number] = max(worst_us, self._windows.get(number, 0))

    def recoveries(self, now_us: int) -> Iterator[tuple[TaskId, int]]:
        """Yields the tasks that have recovered since the last call, and the time since when."""
        self._recovered |= {n for n, (_, at_us, _) in enumerate(self._failures) if at_us < now_us - _WAITED_US}
        begin_us = min((at_us for _, at_us, _ in self._failures), default=now_us) - _BEFORE_US - LATENCY_WINDOW_US
        self._windows = {n: worst_us for n, worst_us in self._windows.items() if n * LATENCY_WINDOW_US >= begin_us}
        yield from self._found(now_us)
        if len(self._recovered) == len(self._failures):
            self._failures, self._recovered = [], set()

    def _found(self, now_us: int) -> Iterator[tuple[TaskId, int]]:
        if not self._failures:
            return
        complete = [
            LatencyWindow(number * LATENCY_WINDOW_US, worst_us)
            for number, worst_us in sorted(self._windows.items())
            if (number + 1) * LATENCY_WINDOW_US + REPORTED_US <= now_us
        ]
        found = healings([(failed_us, effect_us) for _, failed_us, effect_us in self._failures], complete)
        for index, ((task, _, _), healing) in enumerate(zip(self._failures, found, strict=True)):
            if healing.recovered_us is not None and index not in self._recovered:
                self._recovered.add(index)
                yield task, healing.recovered_us
