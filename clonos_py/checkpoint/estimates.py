"""What a job learns about its checkpoints and failures, and the interval that follows (E20). Pure: no clock, no I/O.

``IntervalEstimator`` is given durations and times in seconds by whoever measures them, and puts them into the model
(``interval.py``). Every quantity forgets: costs over about ``_CHECKPOINTS`` checkpoints, failures and recoveries over
about ``_FAILURES`` failures. So the estimator follows a job that changes, and takes the same memory however long it
runs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from clonos_py.checkpoint.interval import IntervalModel, LocalFailures, Rollbacks
from clonos_py.model.ids import TaskId
from clonos_py.model.snapshots import KeptEstimates, WeightedSum

_CHECKPOINTS = 5
_FAILURES = 30
_PRIOR_FAILURES = 0.1
"""The weight of the expected rate, in failures: the first real failure outweighs it ten times. Each real failure halves
it. Otherwise an expectation that is a thousand times too low would hide dozens of failures, as it counts like a long
time without any."""
_SPEED_MIN, _SPEED_MAX = 0.1, 1_000.0
"""A replay that takes hardly any time says only that it is fast."""
_BUDGET_SHARE = 0.5
"""The share of the in-flight budget that an interval may fill. At this share a task requests a checkpoint."""


class IntervalBound(Enum):
    """What keeps an interval from being the best one."""

    NONE = "nothing"
    SHORTEST = "checkpoint_interval_min"
    LONGEST = "checkpoint_interval_max"
    BUDGET = "in_flight_budget"
    DURATION = "the time until a checkpoint is complete"
    UNMEASURED = "no checkpoint measured yet"


@dataclass(frozen=True)
class IntervalLimits:
    """What bounds an interval, and what is expected before anything is measured."""

    first_s: float
    """The interval until a checkpoint is measured."""
    shortest_s: float
    longest_s: float
    failures_per_s: float
    """The rate of failures that is expected, of the whole job."""
    budget_bytes: float = math.inf
    """The memory for retained frames of a task; infinite if they are written to disk."""


@dataclass(frozen=True)
class ChosenInterval:
    """An interval, and the estimates that it follows from; None: not measured yet."""

    interval_s: float
    best_s: float | None
    bound: IntervalBound
    cost_s: float | None
    restart_s: float | None
    replay_speed: float | None
    failures_per_s: float
    utilization: float
    """The share of time so far that was lost neither to checkpoints nor to failures."""


class _Mean:
    """A mean that forgets: with each value all earlier ones count a little less."""

    def __init__(self, values: int, kept: WeightedSum | None = None) -> None:
        """``values``: about how many values count."""
        self._keep = 1 - 1 / values
        self._sum, self._weight = (0.0, 0.0) if kept is None else (kept.sum, kept.weight)

    def add(self, value: float, weight: float = 1.0) -> None:
        self._sum, self._weight = self._sum * self._keep + value, self._weight * self._keep + weight

    @property
    def value(self) -> float | None:
        return self._sum / self._weight if self._weight else None

    @property
    def kept(self) -> WeightedSum:
        return WeightedSum(self._sum, self._weight)


class _Rate:
    """The rate of failures: a Gamma distribution, which the expected rate begins, and which forgets with failures."""

    def __init__(self, expected_per_s: float, now_s: float, kept: KeptEstimates | None) -> None:
        self.expected, self.expected_s = _PRIOR_FAILURES, _PRIOR_FAILURES / expected_per_s
        self.failures = self.rollbacks = self.seconds = 0.0
        self.since_s = now_s
        if kept is not None:
            self.expected, self.expected_s = kept.expected, kept.expected_s
            self.failures, self.rollbacks = kept.failures, kept.rollbacks
            self.seconds, self.since_s = kept.seconds, now_s - kept.since_s

    def failed(self, at_s: float) -> None:
        keep = 1 - 1 / _FAILURES
        self.expected, self.expected_s = self.expected / 2, self.expected_s / 2
        self.failures, self.rollbacks = self.failures * keep + 1, self.rollbacks * keep
        self.seconds, self.since_s = self.seconds * keep + at_s - self.since_s, at_s

    def rolled_back(self) -> None:
        """The last failure has rolled the job back."""
        self.rollbacks += 1

    def per_s(self, now_s: float) -> float:
        observed_s = self.seconds + now_s - self.since_s
        return (self.expected + self.failures) / (self.expected_s + observed_s)

    @property
    def rollback_share(self) -> float:
        return min(self.rollbacks / self.failures, 1.0) if self.failures else 0.0


class IntervalEstimator:
    """The estimates of one job. ``rolls_back``: every failure rolls the job back. ``feed_lag_s``: how far fed
    standbys are behind, None if they are not fed. ``kept``: estimates to go on with."""

    def __init__(
        self,
        limits: IntervalLimits,
        now_s: float,
        rolls_back: bool,
        feed_lag_s: float | None = None,
        kept: KeptEstimates | None = None,
    ) -> None:
        self._limits, self._rolls_back, self._feed_lag_s = limits, rolls_back, feed_lag_s
        self._rate = _Rate(limits.failures_per_s, now_s, kept)
        self._costs: dict[TaskId, tuple[_Mean, _Mean]] = {}
        """By task: what its snapshots cost, and how long it was busy between them."""
        if kept is not None and kept.task is not None:
            self._costs[kept.task] = _Mean(_CHECKPOINTS, kept.cost), _Mean(_CHECKPOINTS, kept.busy)
        self._duration = _Mean(_CHECKPOINTS, kept.duration if kept else None)
        self._growth = _Mean(_CHECKPOINTS, kept.growth if kept else None)
        self._restart = _Mean(_FAILURES, kept.restart if kept else None)
        self._rollback_restart = _Mean(_FAILURES, kept.rollback_restart if kept else None)
        self._speed = _Mean(_FAILURES, kept.speed if kept else None)
        self._began_s = now_s - (kept.elapsed_s if kept else 0.0)
        self._lost_s = kept.lost_s if kept else 0.0

    def kept(self, now_s: float) -> KeptEstimates:
        """The estimates of now, for an estimator that goes on with them. Of the tasks it has the one that limits the
        job: the others are measured again with the next checkpoint."""
        rate, limiting = self._rate, self._bottleneck
        cost, busy = self._costs[limiting] if limiting else (_Mean(1), _Mean(1))
        return KeptEstimates(
            now_s - self._began_s,
            self._lost_s,
            rate.expected,
            rate.expected_s,
            rate.failures,
            rate.rollbacks,
            rate.seconds,
            now_s - rate.since_s,
            limiting,
            cost.kept,
            busy.kept,
            self._duration.kept,
            self._growth.kept,
            self._restart.kept,
            self._rollback_restart.kept,
            self._speed.kept,
        )

    # ---- what is measured

    def snapshot(self, task: TaskId, cost_s: float, busy_s: float) -> None:
        """The snapshot of a task has cost so much work. ``busy_s``: how long it has worked since its last one."""
        costs, busy = self._costs.setdefault(task, (_Mean(_CHECKPOINTS), _Mean(_CHECKPOINTS)))
        costs.add(cost_s)
        busy.add(busy_s)
        if task == self._bottleneck:
            self._lost_s += cost_s

    def completed(self, duration_s: float) -> None:
        """A checkpoint is complete, so long after it was triggered."""
        self._duration.add(duration_s)

    def retained(self, retained_bytes: float, within_s: float) -> None:
        """The task that retains most has retained so much since its restart point."""
        if within_s > 0:
            self._growth.add(retained_bytes, within_s)

    def failed(self, at_s: float) -> None:
        """A task has failed, or several at once."""
        self._rate.failed(at_s)

    def rolled_back(self) -> None:
        """The last failure rolls the job back."""
        if not self._rolls_back:
            self._rate.rolled_back()

    def restarted(self, restart_s: float, again_s: float) -> None:
        """The job goes on after a rollback, so long after the failure, and does work of ``again_s`` again."""
        self._rollback_restart.add(restart_s)
        self._lost_s += restart_s + again_s

    def replayed(self, restart_s: float, work_s: float, replay_s: float) -> None:
        """A failed task has been replaced within ``restart_s``, and has then replayed ``work_s`` in ``replay_s``."""
        self._restart.add(restart_s)
        self._speed.add(work_s, max(replay_s, work_s / _SPEED_MAX, 1e-6))
        self._lost_s += restart_s + replay_s

    # ---- what follows

    @property
    def cost_s(self) -> float | None:
        """The work that a checkpoint costs: that of the task that limits the job."""
        limiting = self._bottleneck
        return self._costs[limiting][0].value if limiting else None

    @property
    def _bottleneck(self) -> TaskId | None:
        """The task with most to do, snapshots included."""
        return max(self._costs, key=lambda task: sum(mean.value or 0 for mean in self._costs[task]), default=None)

    @property
    def replay_speed(self) -> float | None:
        found = self._speed.value
        return None if found is None else min(max(found, _SPEED_MIN), _SPEED_MAX)

    def model(self, now_s: float) -> IntervalModel | None:
        """The model with the estimates of now; None before a snapshot was measured."""
        if self.cost_s is None:
            return None
        per_s = self._rate.per_s(now_s)
        rollbacks_per_s = per_s * (1.0 if self._rolls_back else self._rate.rollback_share)
        local_per_s, restart_s, speed = per_s - rollbacks_per_s, self._restart.value or 0.0, self.replay_speed or 1.0
        return IntervalModel(
            self.cost_s,
            Rollbacks(rollbacks_per_s, self._rollback_restart.value or 0.0) if rollbacks_per_s else None,
            LocalFailures(local_per_s, restart_s, speed, self._feed_lag_s) if local_per_s else None,
            self._duration.value or 0.0,
        )

    def choose(self, now_s: float) -> ChosenInterval:
        """The interval to use from now on."""
        model = self.model(now_s)
        best_s = None if model is None else model.best_s()
        interval_s, bound = self._bounded(self._limits.first_s if best_s is None else best_s)
        if best_s is None and bound is IntervalBound.NONE:
            bound = IntervalBound.UNMEASURED
        return ChosenInterval(
            interval_s,
            best_s,
            bound,
            self.cost_s,
            (self._rollback_restart if self._rolls_back else self._restart).value,
            None if self._rolls_back else self.replay_speed,
            self._rate.per_s(now_s),
            self._utilization(now_s),
        )

    def _bounded(self, interval_s: float) -> tuple[float, IntervalBound]:
        limits, bound, duration_s = self._limits, IntervalBound.NONE, self._duration.value or 0.0
        growth = self._growth.value
        budget_s = limits.budget_bytes * _BUDGET_SHARE / growth - duration_s if growth else math.inf
        for most_s, named in ((limits.longest_s, IntervalBound.LONGEST), (budget_s, IntervalBound.BUDGET)):
            if interval_s > most_s:
                interval_s, bound = most_s, named
        for least_s, named in ((duration_s, IntervalBound.DURATION), (limits.shortest_s, IntervalBound.SHORTEST)):
            if interval_s < min(least_s, limits.longest_s):
                interval_s, bound = min(least_s, limits.longest_s), named
        return interval_s, bound

    def _utilization(self, now_s: float) -> float:
        elapsed_s = now_s - self._began_s
        return max(1 - self._lost_s / elapsed_s, 0.0) if elapsed_s > 0 else 1.0
