"""The metrics of users' functions as Prometheus and the page get them.

A counter for Prometheus must never fall: it takes a lower value for the restart of a process, and adds the value again.
But a replacement begins with what its restart point says, and a rollback takes back. So /metrics shows the highest
value of each counter and histogram until the task has passed it; then every row counts once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import Any

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.utils import floatToGoString

from clonos_py.model.counters import ProcessCounters
from clonos_py.model.ids import TaskId
from clonos_py.model.user_metrics import MetricKind, UserMetric, operator_and_name

_FAMILIES = {
    MetricKind.COUNTER: CounterMetricFamily,
    MetricKind.GAUGE: GaugeMetricFamily,
    MetricKind.HISTOGRAM: HistogramMetricFamily,
}
_LABELS = ("job", "operator", "task")


class NeverFalling:
    """The counts and metrics of all tasks, with counters that never fall."""

    def __init__(self) -> None:
        self._counts: dict[tuple[TaskId, str], int] = {}
        self._metrics: dict[tuple[TaskId, str], UserMetric] = {}
        self._kinds: dict[str, MetricKind] = {}

    def take(self, task: TaskId, counters: ProcessCounters) -> None:
        """Takes what a task's newest process has counted."""
        for name, count in counters.counts.items():
            self._counts[task, name] = max(count, self._counts.get((task, name), count))
        for name, metric in counters.metrics.items():
            highest = self._metrics.get((task, name))
            if highest is None or highest.kind is not metric.kind or metric.passed >= highest.passed:
                self._metrics[task, name] = metric

    def counts(self) -> Iterator[tuple[TaskId, str, int]]:
        """By task and ``operator.counter``."""
        for (task, name), count in self._counts.items():
            yield task, name, count

    def families(self, prefix: str, job: str) -> Iterator[Metric]:
        """The users' metrics. Of a name with two kinds, one is shown: the run has warned of it."""
        families: dict[str, CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily] = {}
        for (task, key), metric in sorted(self._metrics.items(), key=lambda found: found[0]):
            operator, name = operator_and_name(key)
            if self._kinds.setdefault(name, metric.kind) is not metric.kind:
                continue
            if name not in families:
                help_ = f"A {metric.kind} that functions of the job keep."
                families[name] = _FAMILIES[metric.kind](f"{prefix}user_{name}", help_, labels=_LABELS)
            family, labels = families[name], [job, operator, str(task.index)]
            if isinstance(family, HistogramMetricFamily):
                family.add_metric(labels, list(_buckets(metric).items()), metric.value)
            else:
                family.add_metric(labels, metric.value)
        yield from families.values()


def _buckets(metric: UserMetric) -> dict[str, float]:
    """By upper bound of a histogram: how many numbers are not above it."""
    bounds = (*map(floatToGoString, metric.bounds), "+Inf")
    return dict(zip(bounds, map(float, accumulate(metric.times)), strict=True))


def as_json(metrics: Mapping[str, Mapping[int, UserMetric]]) -> list[dict[str, Any]]:
    """Users' metrics by ``operator.name`` and task, for the page and other programs."""
    return [
        {"operator": operator, "name": name, "task": task, "kind": metric.kind, "value": metric.value}
        | ({"count": metric.count, "buckets": _buckets(metric)} if metric.kind is MetricKind.HISTOGRAM else {})
        for key, by_task in sorted(metrics.items())
        for operator, name in [operator_and_name(key)]
        for task, metric in sorted(by_task.items())
    ]
