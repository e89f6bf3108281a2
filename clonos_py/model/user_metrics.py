"""The metrics that users' functions keep with ``ctx.metrics``: what they are, and their values in a task.

The values of a task belong to its progress, so that a snapshot stores them and a replay repeats them: what a replay
counts again counts once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

import msgspec

WHOLE_MAX = 2**63
"""Numbers from here on are stored as floats."""


class MetricKind(StrEnum):
    """What a metric does with the numbers that it is given: adds them, keeps the last, or sorts them into buckets."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class MetricDefinition(NamedTuple):
    """A metric of an operator. ``bounds``: the upper bounds of a histogram's buckets, ascending."""

    name: str
    kind: MetricKind
    bounds: tuple[float, ...] = ()


class UserMetric(msgspec.Struct, frozen=True):
    """The value of a metric in one task: the total of a counter, the last number of a gauge, the sum of a histogram."""

    kind: MetricKind
    value: int | float
    bounds: tuple[float, ...] = ()
    times: tuple[int, ...] = ()
    """By bucket of a histogram: how many numbers it has; the last bucket is for those above all bounds."""

    @property
    def count(self) -> int:
        """How many numbers a histogram has got."""
        return sum(self.times)

    @property
    def passed(self) -> int | float:
        """A number that grows with what the metric has got; of a gauge 0."""
        match self.kind:
            case MetricKind.COUNTER:
                return self.value
            case MetricKind.HISTOGRAM:
                return self.count
            case MetricKind.GAUGE:
                return 0

    def fits(self, definition: MetricDefinition) -> bool:
        """Whether the metric can go on with this value. An upgraded job may define it in another way."""
        return self.kind is definition.kind and self.bounds == definition.bounds


def after(before: UserMetric | None, definition: MetricDefinition, amount: float) -> UserMetric:
    """The value of a metric that is given one more number. It begins at zero if ``before`` does not fit."""
    if before is not None and not before.fits(definition):
        before = None
    kind, bounds = definition.kind, definition.bounds
    if kind is MetricKind.GAUGE:
        return UserMetric(kind, amount)
    value = amount if before is None else before.value + amount
    if isinstance(value, int) and not -WHOLE_MAX <= value < WHOLE_MAX:
        value = float(value)
    if kind is MetricKind.COUNTER:
        return UserMetric(kind, value)
    times = list(before.times) if before is not None else [0] * (len(bounds) + 1)
    times[bisect_left(bounds, amount)] += 1
    return UserMetric(kind, value, bounds, tuple(times))


def total(metrics: Iterable[UserMetric]) -> UserMetric | None:
    """What several tasks have counted together; None if that has no meaning: it has none for gauges, and for histograms
    with other buckets."""
    found: UserMetric | None = None
    for metric in metrics:
        if metric.kind is MetricKind.GAUGE:
            return None
        if found is None:
            found = metric
            continue
        if (metric.kind, metric.bounds) != (found.kind, found.bounds):
            return None
        times = tuple(one + other for one, other in zip(found.times, metric.times, strict=True))
        found = UserMetric(found.kind, found.value + metric.value, found.bounds, times)
    return found


def operator_and_name(key: str) -> tuple[str, str]:
    """The parts of ``operator.name``. Names of metrics and counters have no dots; those of operators may."""
    operator, _, name = key.rpartition(".")
    return operator, name


def operator_of(key: str) -> str:
    """The operator of ``operator.name``."""
    return operator_and_name(key)[0]
