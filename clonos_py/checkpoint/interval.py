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

There are two kinds of failures. After a *rollback* the work since the last complete checkpoint is lost and done again
(equations 1, 3, 4 and 10). After a *local* failure one task is replaced, which replays the work of its predecessor;
nothing else is lost (E19). A failure during a restart or a replay begins it again. If there are both kinds, rollbacks
during a local recovery are neglected.
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
    """Failures after which one task is replaced and replays the work since its restart point."""

    per_s: float
    restart_s: float = 0.0
    replay_speed: float = 1.0

    def __post_init__(self) -> None:
        _check(self, positive=("per_s", "replay_speed"))

    @property
    def weight_per_s(self) -> float:
        """The rate of rollbacks for which the best interval is the same."""
        return self.per_s / self.replay_speed


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
        done: y' = exp(lambda1 (R1 + z / v)) + lambda2 y. All terms are positive, so none cancels another."""
        a, rate = self._rates
        growth, lag_s = a - rate, self.lag_s
        try:
            local = _growing(growth, lag_s) * math.expm1(a * interval_s) + math.exp(rate * interval_s) * _growing(
                growth, interval_s
            )
            lost = self._rollback_s * math.expm1(rate * interval_s)
            return math.exp(rate * lag_s) * (lost + self._recovery_factor * local)
        except OverflowError:
            return math.inf

    # ---- the best interval

    def best_s(self) -> float:
        """The interval with the highest utilization; infinite without failures.

        With one kind of failures it depends on its cost and its rate only (E18). With both it is the root of the
        derivative, which is unique since ``effective_s`` is convex."""
        a, rate = self._rates
        if self.rollbacks is None or self.local is None:
            return best_interval_s(self.cost_s, a + rate) if a + rate else math.inf
        low_s = self.cost_s
        high_s = best_interval_s(self.cost_s, max(a, rate))
        while self._rises(high_s):
            low_s, high_s = high_s, 2 * high_s
        return _last(self._rises, low_s, high_s)

    def _rises(self, interval_s: float) -> bool:
        """Whether utilization is higher at intervals a little longer."""
        try:
            return self.effective_s(interval_s) > (interval_s - self.cost_s) * self._effective_growth(interval_s)
        except OverflowError:
            return False

    def _effective_growth(self, interval_s: float) -> float:
        """The derivative of ``effective_s``. Raises OverflowError."""
        a, rate = self._rates
        growth, lag_s = a - rate, self.lag_s
        again, once = math.exp(rate * interval_s), math.exp(a * interval_s)
        local = once * (1 + a * _growing(growth, lag_s)) + rate * again * _growing(growth, interval_s)
        return math.exp(rate * lag_s) * (self._rollback_s * rate * again + self._recovery_factor * local)

    @property
    def _rates(self) -> tuple[float, float]:
        """lambda1 / v and lambda2."""
        return self.local.weight_per_s if self.local else 0.0, self.rollbacks.per_s if self.rollbacks else 0.0

    @property
    def _rollback_s(self) -> float:
        """The mean time of a restart of the whole job, which a failure begins again."""
        if self.rollbacks is None:
            return 0.0
        return math.expm1(self.rollbacks.per_s * self.rollbacks.restart_s) / self.rollbacks.per_s

    @property
    def _recovery_factor(self) -> float:
        return math.exp(self.local.per_s * self.local.restart_s) if self.local else 1.0

    # ---- what else the interval decides

    def bounds(self, interval_s: float) -> IntervalBounds:
        """What follows from an interval beside utilization."""
        speed = self.local.replay_speed if self.local else 1.0
        return IntervalBounds(
            visible_s_mean=(interval_s + self.cost_s) / 2 + self.lag_s,
            visible_s_max=interval_s + self.lag_s,
            replay_s_mean=(interval_s / 2 + self.lag_s) / speed,
            replay_s_max=(interval_s + self.lag_s) / speed,
            retained_s_max=interval_s + self.lag_s,
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
