"""The checkpoint interval that a job finds itself (E20): what the coordinator sees goes into the estimator.

A failure begins with the first lost task and ends when its replacement has replayed, or, where the job rolls back, when
all tasks have had an effect again. Tasks that are lost before a replacement is activated belong to the same failure.
There is one interval for the job, also where tasks take snapshots alone. Each manifest holds the estimates, and a
coordinator that replaces a lost one goes on with those of the newest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain

from clonos_py.checkpoint.estimates import ChosenInterval, IntervalBound, IntervalEstimator, IntervalLimits
from clonos_py.job.context import CoordinatorContext
from clonos_py.job.events import AutoInterval, Instructions, ReportEvent
from clonos_py.job.fleet import Role
from clonos_py.model import messages
from clonos_py.model.coordinator_events import (
    CheckpointCompleted,
    CoordinatorEvent,
    Deployed,
    IntervalChosen,
    Replayed,
    Restarted,
    RolledBack,
    StandbyActivated,
    TaskLost,
)
from clonos_py.model.ids import TaskId


@dataclass
class _Failure:
    """A failure from which the job recovers. ``work_s``: the work since the restart point."""

    at_s: float
    work_s: float
    tasks: set[TaskId] = field(default_factory=set)
    rolls_back: bool = False
    activated_s: float | None = None


class IntervalChoice:
    """One for a coordinator whose policy has ``auto_interval``."""

    def __init__(self, context: CoordinatorContext, auto: AutoInterval) -> None:
        self._context = context
        policy, plan = context.policy, context.plan
        self._loses_work = plan.rollback or plan.gaps
        self._feed_lag_s = plan.standby_feed_us / 1e6 if plan.standby_feed_us else None
        self._estimator = IntervalEstimator(
            IntervalLimits(
                policy.checkpoint_interval_us / 1e6,
                auto.shortest_us / 1e6,
                auto.longest_us / 1e6,
                len(plan.tasks) * 1e6 / auto.mtbf_us,
                float("inf") if auto.budget_bytes is None else auto.budget_bytes,
            ),
            self._now_s,
            self._loses_work,
            self._feed_lag_s,
            context.completed.kept,
        )
        self._failure: _Failure | None = None
        self._restart_point_s = self._now_s
        self._recoveries: list[tuple[float, float]] = []
        """Begin and end of those since the restart point: no work was done in this time."""
        self._retained_bytes: dict[int, int] = {}
        """By process: its retained frames, as last reported."""
        context.completed.estimates = lambda: self._estimator.kept(self._now_s)
        if context.completed.kept is not None:
            self._use(self._estimator.choose(self._now_s))

    @property
    def _now_s(self) -> float:
        return self._context.now_us / 1e6

    # ---- what the coordinator sees

    def snapshot(self, message: messages.Snapshotted) -> None:
        """The snapshot of a task is durable."""
        self._estimator.snapshot(message.handle.task, message.cost_ms / 1e3, message.busy_ms / 1e3)

    def counted(self, message: messages.Pong) -> None:
        """A process has answered a heartbeat."""
        self._retained_bytes[message.process] = message.counters.in_flight_bytes

    def reported(self, instructions: Instructions) -> Instructions:
        """Takes the events among these instructions. Returns the report of a new interval, after a checkpoint."""
        events = [instruction.event for instruction in instructions if isinstance(instruction, ReportEvent)]
        return list(chain.from_iterable(map(self._take, events)))

    def _take(self, event: CoordinatorEvent) -> Sequence[ReportEvent]:
        match event:
            case Deployed():
                self._deployed()
            case TaskLost(task=task, planned=False):
                self._lost(task)
            case RolledBack():
                self._rolls_back()
            case StandbyActivated() if self._failure and not self._failure.rolls_back:
                self._failure.activated_s = self._now_s
            case Replayed(task=task) if self._failure and not (self._failure.rolls_back or self._loses_work):
                self._replayed(self._failure, task)
            case Restarted() if self._failure and (self._failure.rolls_back or self._loses_work):
                self._restarted(self._failure)
            case CheckpointCompleted(duration_ms=duration_ms):
                return [self._completed(duration_ms / 1e3)]
            case _:
                pass
        return []

    def _deployed(self) -> None:
        if self._failure is None:
            self._restart_point_s = self._now_s
        else:
            self._failure.activated_s = self._now_s

    @property
    def _work_s(self) -> float:
        """The work since the restart point."""
        since_s = self._restart_point_s
        down_s = sum(max(end_s - max(begin_s, since_s), 0.0) for begin_s, end_s in self._recoveries)
        return self._now_s - since_s - down_s

    def _failed(self) -> _Failure:
        self._estimator.failed(self._now_s)
        return _Failure(self._now_s, self._work_s)

    def _lost(self, task: TaskId) -> None:
        if self._failure is None:
            self._failure = self._failed()
        elif self._failure.activated_s is not None:  # its recovery has not ended, and begins again
            self._recoveries.append((self._failure.at_s, self._now_s))
            self._failure = self._failed()
        self._failure.tasks.add(task)

    def _rolls_back(self) -> None:
        """A rollback follows the loss of a task, or an error that only a rollback can mend."""
        if self._failure is None:
            self._failure = self._failed()
        if not self._failure.rolls_back:
            self._estimator.rolled_back()
        self._failure.rolls_back, self._failure.activated_s = True, None

    def _replayed(self, failure: _Failure, task: TaskId) -> None:
        failure.tasks.discard(task)
        if failure.tasks or failure.activated_s is None:
            return
        self._failure = None
        self._recoveries.append((failure.at_s, self._now_s))
        work_s = failure.work_s if self._feed_lag_s is None else min(failure.work_s, self._feed_lag_s)
        self._estimator.replayed(failure.activated_s - failure.at_s, work_s, self._now_s - failure.activated_s)

    def _restarted(self, failure: _Failure) -> None:
        """The work since the restart point begins again."""
        self._estimator.restarted(self._now_s - failure.at_s, failure.work_s)
        self._failure, self._restart_point_s, self._recoveries = None, self._now_s, []

    # ---- the interval

    def _completed(self, duration_s: float) -> ReportEvent:
        active = {process.number for process in self._context.fleet.with_role(Role.ACTIVE)}
        self._retained_bytes = {n: size for n, size in self._retained_bytes.items() if n in active}
        most_bytes = max(self._retained_bytes.values(), default=0)
        self._estimator.retained(most_bytes, self._now_s - self._restart_point_s)
        self._restart_point_s = self._now_s - duration_s
        self._recoveries = [recovery for recovery in self._recoveries if recovery[1] > self._restart_point_s]
        if self._failure is None and not self._recoveries:  # otherwise it has waited for a replay
            self._estimator.completed(duration_s)
        chosen = self._estimator.choose(self._now_s)
        self._use(chosen)
        return ReportEvent(_event(chosen))

    def _use(self, chosen: ChosenInterval) -> None:
        self._context.interval_us = max(round(chosen.interval_s * 1e3), 1) * 1_000


def _event(chosen: ChosenInterval) -> IntervalChosen:
    return IntervalChosen(
        chosen.interval_s,
        chosen.best_s,
        None if chosen.bound is IntervalBound.NONE else chosen.bound.value,
        chosen.cost_s,
        chosen.restart_s,
        chosen.replay_speed,
        chosen.failures_per_s,
        chosen.utilization,
    )
