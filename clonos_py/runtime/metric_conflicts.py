"""Warns of metrics of different kinds that users' functions keep under one name: Prometheus shows one kind of a name.

An operator itself refuses a second kind. Only the run's driver sees the metrics of several operators.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from clonos_py.model.user_metrics import MetricKind, UserMetric, operator_and_name
from clonos_py.observe.events import MetricConflict


class MetricConflicts:
    """Finds conflicts, and warns once for each name."""

    def __init__(self) -> None:
        self._first: dict[str, tuple[str, MetricKind]] = {}
        self._warned: set[str] = set()

    def warnings(self, metrics: Mapping[str, UserMetric]) -> Iterator[MetricConflict]:
        """``metrics``: by ``operator.name``."""
        for key, metric in metrics.items():
            operator, name = operator_and_name(key)
            first, kind = self._first.setdefault(name, (operator, metric.kind))
            if kind is not metric.kind and name not in self._warned:
                self._warned.add(name)
                reason = (
                    f"metric {name!r} is a {kind} in {first!r} and a {metric.kind} in {operator!r}: /metrics shows one "
                    "of them only; rename one"
                )
                yield MetricConflict(name=name, reason=reason)
