"""The utilization of a run, counted from its events, and what the model foretells for the same failures (E21). Pure.

The run's *bottleneck* is one task that is always busy; only it fails. Its time is lost in three ways, and all other
time counts as work or as idle:

- to snapshots: what the job has measured that they cost;
- to outages: from a failure until a replacement goes on, or until all tasks go on after a rollback;
- again: until the replacement has replayed, or after a rollback until the bottleneck is where it was. That is read from
  its count of rows, which is part of its state.

``foretold`` knows only the means of these quantities. It follows a job through the failures of the run, so that the
difference is not due to their number and their moments, which vary much within minutes.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from clonos_py.checkpoint.interval import IntervalModel, LocalFailures, Rollbacks
from clonos_py.model.coordinator_events import (
    CheckpointCompleted,
    Deployed,
    Replayed,
    Restarted,
    StandbyActivated,
)
from clonos_py.model.ids import TaskId
from clonos_py.observe.events import Event, Measured, TaskFailed

_US = 1e6
Timed = Sequence[tuple[int, Event]]
"""Events in order, each with the time at which the listener received it, in microseconds."""
Stretch = tuple[float, float]
"""From one time to a later one, in seconds."""
E = TypeVar("E")


@dataclass(frozen=True)
class AccountedRun:
    """Times in seconds since the deployment. A quantity that was not seen is 0; ``replay_speed`` is None then."""

    seconds: float
    utilization: float
    snapshots_s: float
    outage_s: float
    again_s: float
    failures_s: list[float]
    checkpoints: int
    cost_s: float
    restart_s: float
    replay_speed: float | None
    lag_s: float
    """The median: a checkpoint that is triggered during a replay waits for its end, which ``foretold`` knows."""

    def model(self, rolls_back: bool, failures_per_s: float | None = None) -> IntervalModel:
        """The model of what was measured. ``failures_per_s``: None for as many as there were in this time."""
        per_s = failures_per_s or len(self.failures_s) / self.seconds
        if rolls_back:
            return IntervalModel(self.cost_s, Rollbacks(per_s, self.restart_s), None, self.lag_s)
        local = LocalFailures(per_s, self.restart_s, self.replay_speed or 1.0)
        return IntervalModel(self.cost_s, None, local, self.lag_s)


@dataclass(frozen=True)
class _Failure:
    """``up_s``: when the job went on, ``over_s``: when nothing was left to do again. ``next_s``: the next failure."""

    at_s: float
    next_s: float
    behind_s: float
    up_s: float
    over_s: float


def accounted(events: Timed, bottleneck: TaskId, counter: str, until_us: int, rolls_back: bool) -> AccountedRun:
    """``counter``: the count of the bottleneck's rows, such as ``counted.rows_out``. ``until_us``: the end of what is
    counted. Every failure until then is expected to be of the bottleneck."""
    begin_us = next((at_us for at_us, _ in _of(events, Deployed)), 0)
    steps = _Steps(events, bottleneck, counter, begin_us, until_us)
    failures = steps.rollbacks() if rolls_back else steps.local_failures()
    seconds = (until_us - begin_us) / _US
    completed = [done for _, done in steps.of(CheckpointCompleted)]
    costs, durations = (
        [(done.cost_ms or 0.0) / 1e3 for done in completed],
        [done.duration_ms / 1e3 for done in completed],
    )
    outage_s = _covered((failure.at_s, min(failure.up_s, seconds)) for failure in failures)
    down_s = _covered((failure.at_s, min(failure.over_s, seconds)) for failure in failures)
    back_up = [failure for failure in failures if failure.up_s <= min(failure.next_s, seconds)]
    undisturbed = [failure for failure in back_up if failure.over_s <= min(failure.next_s, seconds)]
    work_s, replay_s = sum(f.behind_s for f in undisturbed), sum(f.over_s - f.up_s for f in undisturbed)
    return AccountedRun(
        seconds,
        1 - (down_s + sum(costs)) / seconds,
        sum(costs),
        outage_s,
        down_s - outage_s,
        [failure.at_s for failure in failures],
        len(completed),
        statistics.mean(costs) if costs else 0.0,
        statistics.mean(failure.up_s - failure.at_s for failure in back_up) if back_up else 0.0,
        work_s / replay_s if replay_s and not rolls_back else None,
        statistics.median(durations) if durations else 0.0,
    )


def _of(events: Timed, kind: type[E]) -> Iterable[tuple[int, E]]:
    return ((at_us, event) for at_us, event in events if isinstance(event, kind))


def _covered(stretches: Iterable[Stretch]) -> float:
    """The time within at least one of the stretches."""
    total = end = 0.0
    for since, until in sorted(stretches):
        total += max(until - max(since, end), 0.0)
        end = max(end, until)
    return total


class _Steps:
    """The events of a run by kind, in seconds since the deployment."""

    def __init__(self, events: Timed, bottleneck: TaskId, counter: str, begin_us: int, until_us: int) -> None:
        self._events = [(at_us, event) for at_us, event in events if at_us <= until_us]
        self._bottleneck, self._counter, self._begin_us = bottleneck, counter, begin_us
        self._failed = [
            self._s(at_us)
            for at_us, event in _of(self._events, TaskFailed)
            if event.task == bottleneck and not event.planned
        ]

    def _s(self, at_us: int) -> float:
        return (at_us - self._begin_us) / _US

    def of(self, kind: type[E]) -> list[tuple[float, E]]:
        return [(self._s(at_us), event) for at_us, event in _of(self._events, kind)]

    def local_failures(self) -> list[_Failure]:
        """A failure is over when the replacement has replayed, perhaps that of a later failure."""
        activated = [at_s for at_s, event in self.of(StandbyActivated) if event.task == self._bottleneck]
        replayed = [at_s for at_s, event in self.of(Replayed) if event.task == self._bottleneck]
        return self._failures((at_s, _first(activated, at_s), _first(replayed, at_s)) for at_s in self._failed)

    def rollbacks(self) -> list[_Failure]:
        """A rollback is over when the bottleneck has taken as many rows as before the failure, or before an earlier
        one from which it had not recovered."""
        restarted, rows = [at_s for at_s, _ in self.of(Restarted)], _RowCounts(self._counts(), self._failed)
        return self._failures((at_s, _first(restarted, at_s), rows.regained(at_s)) for at_s in self._failed)

    def _failures(self, times: Iterable[tuple[float, float, float]]) -> list[_Failure]:
        """``times``: when each happened, when the job went on, and when it was over."""
        found: list[_Failure] = []
        for (at_s, up_s, over_s), next_s in zip(times, [*self._failed, math.inf][1:], strict=True):
            found.append(_Failure(at_s, next_s, self._behind(at_s, found), up_s, over_s))
        return found

    def _behind(self, at_s: float, earlier: Sequence[_Failure]) -> float:
        """The work since the trigger of the last complete checkpoint: the time without that of earlier failures."""
        triggers = [done_s - done.duration_ms / 1e3 for done_s, done in self.of(CheckpointCompleted) if done_s <= at_s]
        trigger_s = max(triggers, default=0.0)
        down_s = _covered((max(failure.at_s, trigger_s), min(failure.over_s, at_s)) for failure in earlier)
        return at_s - trigger_s - down_s

    def _counts(self) -> list[_RowCount]:
        """The rows that the bottleneck had taken, as its processes have reported them."""
        return [
            _RowCount(self._s(reading.at_us), reading.process, float(reading.counters.counts[self._counter]))
            for _, event in _of(self._events, Measured)
            for reading in event.readings
            if reading.task == self._bottleneck and reading.counters.active and self._counter in reading.counters.counts
        ]


def _first(times: Sequence[float], after_s: float) -> float:
    return next((at_s for at_s in times if at_s >= after_s), math.inf)


class _RowCount(NamedTuple):
    at_s: float
    process: int
    rows: float


class _RowCounts:
    """How many rows the processes of a task had taken. A failure ends each; what it has reported may arrive later."""

    def __init__(self, counts: Sequence[_RowCount], failures: Sequence[float]) -> None:
        self._counts = counts
        processes = dict.fromkeys(count.process for count in counts)
        reported = ([count for count in counts if count.process == process] for process in processes)
        self._ended = [
            (process, end_s, _rows_at(found, end_s))
            for process, found in zip(processes, reported, strict=True)
            if (end_s := _first(failures, found[0].at_s)) < math.inf
        ]

    def regained(self, failed_s: float) -> float:
        """When the task has again as many rows as it ever had before this failure; infinite if it has not."""
        ended = {process: rows for process, end_s, rows in self._ended if end_s <= failed_s}
        most, before = max(ended.values(), default=0.0), None
        for count in self._counts:
            if count.process in ended or count.at_s <= failed_s:
                continue
            if count.rows >= most:
                return count.at_s if before is None else _between(before, count, most)
            before = count
        return math.inf


_RATE_COUNTS = 9
"""A task goes on at the speed of so many readings, about two seconds, after the last one."""


def _rows_at(counts: Sequence[_RowCount], at_s: float) -> float:
    first, last = counts[max(len(counts) - _RATE_COUNTS, 0)], counts[-1]
    rate = (last.rows - first.rows) / (last.at_s - first.at_s) if last.at_s > first.at_s else 0.0
    return last.rows + rate * (at_s - last.at_s)


def _between(before: _RowCount, after: _RowCount, rows: float) -> float:
    """When a task had so many rows, if it took them evenly."""
    share = (rows - before.rows) / (after.rows - before.rows)
    return before.at_s + share * (after.at_s - before.at_s)


# ---- what the model foretells


def foretold(model: IntervalModel, interval_s: float, failures_s: Iterable[float], until_s: float) -> float:
    """The utilization until ``until_s`` of a job that begins at 0, fails at these times, and otherwise does what the
    model says: with ``model.rollbacks`` every failure rolls it back, else it recovers locally.

    The coordinator counts an interval on the clock, not in work: the next one begins with the trigger of a checkpoint,
    or with the moment at which one was due while the job was down. During a replay a checkpoint is triggered, and
    taken when the replay is over."""
    job = _ForetoldJob(model, interval_s)
    for failure_s in sorted(failures_s):
        if failure_s < until_s:
            job.work_until(failure_s)
            job.fail(failure_s)
    job.work_until(until_s)
    return job.useful_s / until_s


class _ForetoldJob:
    """Work is measured in seconds since the start, the cost of checkpoints left out."""

    def __init__(self, model: IntervalModel, interval_s: float) -> None:
        self._model, self._interval_s = model, interval_s
        self._now_s = self._done_s = self._most_s = 0.0
        self._due_s = interval_s
        self._restart_point_s = 0.0
        self._pending: tuple[float, float] | None = None
        """When the checkpoint that was triggered is complete, and the work that it covers."""
        self._down_until_s = 0.0
        self._replay_s = 0.0

    @property
    def useful_s(self) -> float:
        return max(self._done_s, self._most_s)

    def work_until(self, end_s: float) -> None:
        while self._now_s < end_s:
            self._complete()
            if self._now_s < self._down_until_s:
                self._wait(min(self._down_until_s, end_s))
            elif self._replay_s > 0:
                self._replay(end_s)
            elif self._due_s <= self._now_s:
                self._checkpoint()
            else:
                until_s = min(end_s, self._due_s, self._pending[0] if self._pending else end_s)
                self._done_s += until_s - self._now_s
                self._most_s, self._now_s = max(self._most_s, self._done_s), until_s

    def _wait(self, until_s: float) -> None:
        """A checkpoint that is due while the job is down is left out."""
        self._now_s = until_s
        while self._due_s <= self._now_s:
            self._due_s += self._interval_s

    def _replay(self, end_s: float) -> None:
        until_s = min(end_s, self._now_s + self._replay_s)
        self._replay_s -= until_s - self._now_s
        self._now_s = until_s
        if self._replay_s < 1e-9:
            self._replay_s = 0.0

    def _checkpoint(self) -> None:
        self._due_s = max(self._due_s, self._now_s - self._interval_s) + self._interval_s
        self._now_s += self._model.cost_s
        self._pending = (max(self._now_s, self._now_s - self._model.cost_s + self._model.lag_s), self._done_s)

    def _complete(self) -> None:
        if self._pending is not None and self._pending[0] <= self._now_s:
            self._restart_point_s, self._pending = self._pending[1], None

    def fail(self, at_s: float) -> None:
        self._complete()
        self._pending = None
        model = self._model
        if model.rollbacks is not None:
            self._down_until_s, self._done_s = at_s + model.rollbacks.restart_s, self._restart_point_s
        elif model.local is not None:
            self._down_until_s = at_s + model.local.restart_s
            self._replay_s = (self._done_s - self._restart_point_s) / model.local.replay_speed
