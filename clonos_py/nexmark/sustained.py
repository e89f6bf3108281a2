"""The maximum sustainable throughput: the highest rate at which a query does not fall behind, found by bisection.

A trial offers events at a fixed rate for some time. When the job cannot keep up, back-pressure reaches the sources,
which read later and later than events are due; as latency counts from when an event was due, this lag is in it. A rate
is sustained if the median latency of the trial's last quarter is within a limit: a job that is a share s too slow is
s times the trial's length behind by then, so that a trial of 20 s with a limit of 0.5 s notices 2.5%.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

_STRIDE = 1.5
"""How far to go from a rate while only one side of the maximum is known."""
_TRIALS_MAX = 16


@dataclass(frozen=True)
class RateTrial:
    """One rate that was offered: the lag at the end (None: no marker arrived, so that nothing is known) and p99."""

    rate: float
    sustained: bool
    lag_ms: float | None
    p99_ms: float | None
    back_pressure: float = 0.0
    """In which share of looks a source was held back."""


@dataclass
class Search:
    """``low`` is the highest rate known to be sustained, ``high`` the lowest known not to be."""

    first: float
    precision: float
    low: float = 0.0
    high: float | None = None
    trials: list[RateTrial] = field(default_factory=list)

    @property
    def done(self) -> bool:
        """The maximum is known up to ``precision``, or cannot be found."""
        near = self.high is not None and self.low > 0 and self.high <= self.low * (1 + self.precision)
        return near or len(self.trials) >= _TRIALS_MAX

    @property
    def next_rate(self) -> float:
        if not self.trials:
            return self.first
        if self.high is None:
            return self.low * _STRIDE
        return (self.low + self.high) / 2 if self.low else self.high / _STRIDE

    def learn(self, trial: RateTrial) -> None:
        self.trials.append(trial)
        if trial.sustained:
            self.low = max(self.low, trial.rate)
        else:
            self.high = min(self.high or trial.rate, trial.rate)


def search(
    first: float,
    precision: float,
    attempt: Callable[[float], RateTrial],
    report: Callable[[Search], None] = lambda found: None,
) -> Search:
    """Tries rates, ``first`` first, until the maximum is known; ``report`` gets the search after each trial."""
    found = Search(first, precision)
    while not found.done:
        found.learn(attempt(found.next_rate))
        report(found)
    return found


def judged(rate: float, report: Mapping[str, Any], limit_ms: float) -> RateTrial:
    """What a trial's report says of its rate."""
    seconds = report["latency_ms_per_second"]
    last_quarter = [second["p50"] for second in seconds[-max(len(seconds) // 4, 1) :]]
    lag_ms = statistics.median(last_quarter) if last_quarter else None
    return RateTrial(
        rate=rate,
        sustained=lag_ms is not None and lag_ms <= limit_ms,
        lag_ms=lag_ms,
        p99_ms=report["latency_steady_ms"]["p99"],
        back_pressure=max(report["back_pressure"].values(), default=0.0),
    )
