"""``ctx.metrics``: counters, gauges and histograms of a user's functions.

Their values belong to the task's progress: a replay repeats them, and a rollback takes them back. So a row counts once,
whatever fails. They have no effect on results, and functions cannot read them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from itertools import pairwise
from numbers import Integral, Real

from clonos_py.model.errors import UserCodeError
from clonos_py.model.user_metrics import WHOLE_MAX, MetricDefinition, MetricKind

NAMES_MAX = 64
"""The most metrics of one operator."""
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""The upper bounds of a histogram's buckets if none are given: those of Prometheus's clients, for seconds."""
_BUCKETS_MAX = 64
_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]{0,99}")
_RESERVED = ("_total", "_sum", "_count", "_bucket", "_created", "_info")
"""Endings with which Prometheus names the parts of a metric."""

Measure = Callable[[MetricDefinition, float], None]


class FunctionCounter:
    """A number that only grows."""

    def __init__(self, definition: MetricDefinition, measure: Measure) -> None:
        self._definition, self._measure = definition, measure

    def inc(self, amount: float = 1) -> None:
        """Adds to the counter; ``amount`` must not be negative."""
        if amount.__class__ is not int:
            amount = _number(self._definition, amount)
        if amount < 0:
            raise UserCodeError(f"counter {self._definition.name!r} cannot fall by {-amount}: a gauge can")
        self._measure(self._definition, amount)


class FunctionGauge:
    """A number that rises and falls."""

    def __init__(self, definition: MetricDefinition, measure: Measure) -> None:
        self._definition, self._measure = definition, measure

    def set(self, value: float) -> None:
        """Replaces the number."""
        self._measure(self._definition, _number(self._definition, value))


class FunctionHistogram:
    """Numbers, counted by size."""

    def __init__(self, definition: MetricDefinition, measure: Measure) -> None:
        self._definition, self._measure = definition, measure

    def observe(self, value: float) -> None:
        """Counts a number in its bucket."""
        self._measure(self._definition, _number(self._definition, value))


class FunctionMetrics:
    """The metrics of one operator. Each is defined by its first use."""

    def __init__(self, measure: Measure, definitions: dict[str, MetricDefinition] | None = None) -> None:
        """``measure``: takes each number. ``definitions``: those so far, by name, which several objects may share."""
        self._measure = measure
        self._definitions = {} if definitions is None else definitions
        self._counters: dict[str, FunctionCounter] = {}

    def counter(self, name: str) -> FunctionCounter:
        """A counter, in ``/metrics`` as ``clonos_user_NAME_total``."""
        found = self._counters.get(name)
        if found is None:
            found = self._counters[name] = FunctionCounter(self._defined(name, MetricKind.COUNTER), self._measure)
        return found

    def gauge(self, name: str) -> FunctionGauge:
        """A gauge, in ``/metrics`` as ``clonos_user_NAME``."""
        return FunctionGauge(self._defined(name, MetricKind.GAUGE), self._measure)

    def histogram(self, name: str, buckets: Sequence[float] = BUCKETS) -> FunctionHistogram:
        """A histogram, in ``/metrics`` as ``clonos_user_NAME``. ``buckets``: their upper bounds, ascending; each use of
        the name gives the same."""
        return FunctionHistogram(self._defined(name, MetricKind.HISTOGRAM, buckets), self._measure)

    def collecting(self, measure: Measure) -> FunctionMetrics:
        """The same metrics, whose numbers ``measure`` takes."""
        return FunctionMetrics(measure, self._definitions)

    def _defined(self, name: str, kind: MetricKind, buckets: Sequence[float] = ()) -> MetricDefinition:
        found = self._definitions.get(name)
        if found is None:
            found = self._definitions[name] = self._checked(name, kind, buckets)
        elif found.kind is not kind:
            raise UserCodeError(f"metric {name!r} is a {found.kind} of this operator: give the {kind} another name")
        elif found.bounds is not buckets and found.bounds != tuple(buckets):
            raise UserCodeError(f"histogram {name!r} has the buckets {found.bounds}: each use must give the same")
        return found

    def _checked(self, name: str, kind: MetricKind, buckets: Sequence[float]) -> MetricDefinition:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise UserCodeError(
                f"{name!r:.120} is no name of a metric: use letters, digits and _, at most 100, no digit first"
            )
        if ending := next((ending for ending in _RESERVED if name.endswith(ending)), None):
            raise UserCodeError(f"metric {name!r}: leave out {ending!r}, which Prometheus adds itself")
        if len(self._definitions) == NAMES_MAX:
            raise UserCodeError(
                f"metric {name!r} is one too many: an operator has at most {NAMES_MAX}; names must not come from data"
            )
        return MetricDefinition(name, kind, _bounds(name, buckets) if kind is MetricKind.HISTOGRAM else ())


def _bounds(name: str, buckets: Sequence[float]) -> tuple[float, ...]:
    found = tuple(buckets)
    numbers = all(isinstance(bound, int | float) and math.isfinite(bound) for bound in found)
    if not numbers or not 0 < len(found) <= _BUCKETS_MAX or any(one >= other for one, other in pairwise(found)):
        raise UserCodeError(
            f"histogram {name!r}: buckets are {buckets!r:.120}: give 1 to {_BUCKETS_MAX} ascending numbers"
        )
    return tuple(map(float, found))


def _number(definition: MetricDefinition, value: object) -> float:
    """The number as Python's own, which a snapshot can store."""
    if isinstance(value, Integral):
        return whole if -WHOLE_MAX <= (whole := int(value)) < WHOLE_MAX else float(whole)
    if isinstance(value, Real | Decimal) and math.isfinite(value):
        return float(value)
    raise UserCodeError(f"{definition.kind} {definition.name!r} was given {value!r:.120}: give a finite number")
