"""The maximum sustainable throughput: the highest rate at which a query does not fall behind, found by bisection.

A trial offers events at a fixed rate for some time. If the job cannot keep up, back-pressure reaches the sources, which
read events later and later after they are due. Latency counts from the due time, so it includes this lag. A rate is
sustained if the median latency of the trial's last quarter is within a limit. A job that is too slow by a share s is s
times the trial's length behind at its end. So a trial of 20 s with a limit of 0.5 s detects 2.5%.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

_STRIDE = 1.5
"""The factor between rates while only one bound of the maximum is known."""
_TRIALS_MAX = 16
_FIRST_SHARE = 0.8
"""A search begins at this share of the unpaced throughput, unless its first rate is given."""


@dataclass(frozen=True)
class ThroughputSearch:
    """Parameters of a search for the maximum sustainable throughput: each trial takes ``seconds`` and succeeds if the
    lag stays within ``lag_ms``. The search ends when the maximum is known up to ``precision``. ``first``: the first
    rate."""

    seconds: float = 20.0
    precision: float = 0.05
    lag_ms: float = 500.0
    first: float | None = None


@dataclass(frozen=True)
class RateTrial:
    """The trial of one rate, with the lag at its end (None if no marker arrived) and the p99 latency."""

    rate: float
    sustained: bool
    lag_ms: float | None
    p99_ms: float | None
    back_pressure: float = 0.0
    """The share of readings in which a source was held back by back-pressure."""


@dataclass
class Search:
    """The state of a search. ``low``: the highest rate known to be sustained; ``high``: the lowest known not to be."""

    first: float
    precision: float
    low: float = 0.0
    high: float | None = None
    trials: list[RateTrial] = field(default_factory=list)

    @property
    def done(self) -> bool:
        """Whether the maximum is known up to ``precision``, or the limit of trials is reached."""
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
    """The result of a trial, from its report."""
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


def search_throughput(
    parameters: ThroughputSearch,
    unpaced: Callable[[], float],
    run: Callable[[float], Mapping[str, Any]],
    on_trial: Callable[[Search], None] = lambda found: None,
) -> tuple[Search, Mapping[str, Any]]:
    """Searches for the maximum sustainable throughput. Returns the search and the report of the highest sustained rate
    (of the first rate if none was sustained). ``unpaced`` measures the events per second without a given rate, ``run``
    makes a run at a rate and returns its report."""
    reports: dict[float, Mapping[str, Any]] = {}

    def attempt(rate: float) -> RateTrial:
        reports[rate] = run(rate)
        return judged(rate, reports[rate], parameters.lag_ms)

    found = search(parameters.first or unpaced() * _FIRST_SHARE, parameters.precision, attempt, on_trial)
    return found, reports[found.low or found.trials[0].rate]
