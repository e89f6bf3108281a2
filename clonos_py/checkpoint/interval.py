"""The utilization of a job by its checkpoint interval, and the interval at which it is highest. Pure.

Utilization is the share of time in which a job does useful work or waits for input, and neither takes checkpoints nor
recovers nor repeats work (Jayasekara, Harwood, Karunasekera: *A Utilization Model for Optimization of Checkpoint
Intervals in Distributed Stream Processing Systems*). Names here, and the letters of the paper:

    interval_s      T       from one checkpoint to the next, the cost included
    cost_s          c       work that a checkpoint costs; not the time until it is complete
    per_s           lambda  failures per second, exponentially distributed
    restart_s       R       from a failure until work goes on, replay not included
    lag_s           D       from a barrier until its checkpoint is complete: (n - 1) delta for n operators in a row
    replay_speed    v       speed of a replay, as a multiple of normal speed; this is ours
    feed_lag_s      f       how far a fed standby is behind its task; this is ours, too

There are two kinds of failures. After a *rollback* the work since the last complete checkpoint is lost and done again
(equations 1, 3, 4 and 10). After a *local* failure one task is replaced, which replays the work of its predecessor;
nothing else is lost (E19). A fed standby has most of that work already, so that it replays ``feed_lag_s`` at most. A
failure during a restart or a replay begins it again, and a rollback may come during a local recovery, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields

from clonos_py.model.errors import SettingError

_SERIES_MAX = 0.01
"""Below it ``t + expm1(-t)`` loses digits to cancellation, and its series needs few terms."""
_SERIES_TERMS = 8
_STEPS_MAX = 200


@dataclass(frozen=True)
class Rollbacks:
    """Failures after which the whole job goes back to its last complete checkpoint."""

    per_s: float
    restart_s: float = 0.0

    def __post_init__(self) -> None:
        _check(self, positive=("per_s",))


@dataclass(frozen=True)
class LocalFailures:
    """Failures after which one task is replaced and replays the work since its restart point; the last ``feed_lag_s``
    of it if standbys are fed."""

    per_s: float
    restart_s: float = 0.0
    replay_speed: float = 1.0
    feed_lag_s: float | None = None

    def __post_init__(self) -> None:
        _check(self, positive=("per_s", "replay_speed"))

    @property
    def weight_per_s(self) -> float:
        """The rate of rollbacks for which the best interval is the same."""
        return self.per_s / self.replay_speed

    def recovery_s(self, behind_s: float) -> float:
        """How long it takes at so much work behind the last complete checkpoint."""
        replayed_s = behind_s if self.feed_lag_s is None else min(behind_s, self.feed_lag_s)
        return self.restart_s + replayed_s / self.replay_speed


@dataclass(frozen=True)
class IntervalModel:
    """A job, as far as its checkpoint interval depends on it. Raises SettingError for a value that is negative or not
    finite, and for a rate or a speed of 0."""

    cost_s: float
    rollbacks: Rollbacks | None = None
    local: LocalFailures | None = None
    lag_s: float = 0.0

    def __post_init__(self) -> None:
        _check(self)

    # ---- utilization

    def utilization(self, interval_s: float) -> float:
        """From 0 to 1. Without failures this is equation 1, with rollbacks equation 10 (with no lag equation 4, with no
        restart either equation 3). Raises SettingError if the interval is not longer than the cost of a checkpoint."""
        if not self.cost_s < interval_s < math.inf:
            raise SettingError(
                f"an interval of {interval_s:g} s leaves no time to work, as a checkpoint costs {self.cost_s:g} s: "
                "choose a longer one"
            )
        return (interval_s - self.cost_s) / self.effective_s(interval_s)

    def effective_s(self, interval_s: float) -> float:
        """The mean time from one checkpoint to the next with all failures between them, infinite if no float holds it.

        It is y(D + T) - y(D), where y(z) is the mean time from a rollback until the work z behind its checkpoint is
        done (E19). All terms are positive and each is continuous where a rate is 0, so no digits are lost."""
        try:
            again = self._rate * (self._rollback_restart_s + self._weighed_s(0.0, self.lag_s))
            return math.exp(again) * _growing(self._rate, self._weighed_s(self.lag_s, interval_s))
        except OverflowError:
            return math.inf

    # ---- the best interval

    def best_s(self) -> float:
        """The interval with the highest utilization; infinite without failures, and if standbys are fed and nothing
        rolls back: then a failure costs the same after any interval longer than their lag.

        With one kind of failures it depends on its cost and its rate only (E18). With both it is the root of the
        derivative, which is unique since ``effective_s`` is convex."""
        if self.rollbacks is None or self.local is None:
            rate = self._rate if self.local is None else self.local.weight_per_s
            best_s = best_interval_s(self.cost_s, rate) if rate else math.inf
            fed_s = self.local.feed_lag_s if self.local else None
            return best_s if fed_s is None or best_s + self.lag_s <= fed_s else math.inf
        low_s = self.cost_s
        high_s = best_interval_s(self.cost_s, max(self._rate, self.local.weight_per_s))
        while self._rises(high_s):
            low_s, high_s = high_s, 2 * high_s
        return _last(self._rises, low_s, high_s)

    def _rises(self, interval_s: float) -> bool:
        """Whether utilization is higher at intervals a little longer: ``effective_s`` is longer than the work of the
        interval times its derivative. Both are divided by h(T + D)."""
        try:
            weighed_s = self._weighed_s(self.lag_s, interval_s)
            growth = self._speed_ratio(self.lag_s + interval_s)
        except OverflowError:
            return False
        return _growing(-self._rate, weighed_s) > (interval_s - self.cost_s) * growth

    # ---- the parts of y (E19)

    def _weighed_s(self, behind_s: float, work_s: float) -> float:
        """ln(h(z + x) / h(z)) / lambda2: how long work x, which begins z behind the checkpoint, takes with local
        failures, weighed so that rollbacks act on it as on work without local failures. Raises OverflowError."""
        if self.local is None or self.local.feed_lag_s is None:
            return self._weighed_unfed_s(behind_s, work_s)
        unfed_s = min(max(self.local.feed_lag_s - behind_s, 0.0), work_s)
        fed_s = (work_s - unfed_s) * self._speed_ratio(behind_s + unfed_s)
        return self._weighed_unfed_s(behind_s, unfed_s) + fed_s

    def _weighed_unfed_s(self, behind_s: float, work_s: float) -> float:
        speed = self.local.replay_speed if self.local else 1.0
        grown_s = self._speed_ratio(behind_s) * _growing(self._both, work_s / speed)
        if grown_s == math.inf:
            raise OverflowError
        return speed * (math.log1p(self._rate * grown_s) / self._rate if self._rate * grown_s else grown_s)

    def _speed_ratio(self, behind_s: float) -> float:
        """The derivative of ``_weighed_s`` at the start: lambda exp(y) / (lambda1 + lambda2 exp(y)), where y is lambda
        times a local recovery. It is exp(y) without rollbacks, 1 without local failures. Raises OverflowError."""
        if self.local is None:
            return 1.0
        recovery_s = self.local.recovery_s(behind_s)
        if not self._rate:
            return math.exp(self._both * recovery_s)
        return self._both / (self._rate + self.local.per_s * math.exp(-self._both * recovery_s))

    @property
    def _rate(self) -> float:
        """lambda2."""
        return self.rollbacks.per_s if self.rollbacks else 0.0

    @property
    def _both(self) -> float:
        """lambda1 + lambda2."""
        return self._rate + (self.local.per_s if self.local else 0.0)

    @property
    def _rollback_restart_s(self) -> float:
        return self.rollbacks.restart_s if self.rollbacks else 0.0

    # ---- what else the interval decides

    def bounds(self, interval_s: float) -> IntervalBounds:
        """What follows from an interval beside utilization."""
        most_s = interval_s + self.lag_s
        speed = self.local.replay_speed if self.local else 1.0
        fed_s = self.local.feed_lag_s if self.local else None
        fed_s = most_s if fed_s is None else min(fed_s, most_s)
        beyond_s = max(fed_s - self.lag_s, 0.0)
        return IntervalBounds(
            visible_s_mean=(interval_s + self.cost_s) / 2 + self.lag_s,
            visible_s_max=most_s,
            replay_s_mean=(fed_s - beyond_s**2 / (2 * interval_s)) / speed,
            replay_s_max=fed_s / speed,
            retained_s_max=most_s,
        )

    def longest_s(self, budget_bytes: float, bytes_per_s: float) -> float:
        """The longest interval whose retained frames fit into a budget, for a task that sends ``bytes_per_s``. It is
        negative if the budget is used up before a checkpoint is complete."""
        return budget_bytes / bytes_per_s - self.lag_s


@dataclass(frozen=True)
class IntervalBounds:
    """Times that follow from an interval, for a job that keeps up with its input."""

    visible_s_mean: float
    """From when a transactional sink receives a row until the row is visible, with the checkpoint after it."""
    visible_s_max: float
    replay_s_mean: float
    """How long the replay after a local failure takes, or after a rollback the work that is done again."""
    replay_s_max: float
    retained_s_max: float
    """A task retains the frames that it has sent in so much time, until a checkpoint covers them. Frames that it sends
    while a receiver recovers come on top."""


# ---- the best interval in other models


def best_interval_s(cost_s: float, failures_per_s: float) -> float:
    """T*, which is t / lambda with t + expm1(-t) = c lambda (E18). This is the paper's form with Lambert's W, without
    its cancellation. Its relative error is below 1e-9 for c lambda from 1e-12 to 1."""
    share = cost_s * failures_per_s
    time = math.sqrt(2 * share)
    for _ in range(_STEPS_MAX):
        step = (_lost(time) - share) / -math.expm1(-time) if time else 0.0
        time -= step
        if abs(step) <= 1e-15 * time:
            break
    return time / failures_per_s


def daly_interval_s(cost_s: float, failures_per_s: float, restart_s: float) -> float:
    """Daly's interval of first order, as the paper compares it."""
    return math.sqrt(2 * cost_s * (1 / failures_per_s + restart_s))


def zhuang_interval_s(cost_s: float, failures_per_s: float, restart_s: float) -> float:
    """The interval of Zhuang et al. for a job at its highest rate, as the paper compares it."""
    return math.sqrt(2 * cost_s * (1 / failures_per_s + restart_s) + cost_s**2)


def lag_of(depth: int, delay_s: float) -> float:
    """D: the time a barrier takes through ``depth`` operators in a row, source and sink included."""
    return (depth - 1) * delay_s


# ---- numbers


def _lost(time: float) -> float:
    """``t + expm1(-t)``, which is t^2/2! - t^3/3! + t^4/4! ..."""
    if time >= _SERIES_MAX:
        return time + math.expm1(-time)
    rest = 1.0
    for term in range(_SERIES_TERMS, 2, -1):
        rest = 1 - time / term * rest
    return time * time / 2 * rest


def _growing(rate: float, time: float) -> float:
    """The integral of exp(rate x) from 0 to ``time``. It is continuous at a rate of 0."""
    return math.expm1(rate * time) / rate if rate * time else time


def _last(holds: Callable[[float], bool], low: float, high: float) -> float:
    """The last number between two for which a property holds that holds for all below and for none above it."""
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _check(values: IntervalModel | Rollbacks | LocalFailures, positive: tuple[str, ...] = ()) -> None:
    for field in fields(values):
        value = getattr(values, field.name)
        if not isinstance(value, float | int):
            continue
        least = "more than 0" if field.name in positive else "at least 0"
        if not (math.isfinite(value) and (value > 0 if field.name in positive else value >= 0)):
            raise SettingError(f"{field.name} is {value:g}: give a finite number of {least}")
