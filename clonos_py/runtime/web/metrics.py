"""The metrics of a run for Prometheus, in its text format and in base units.

Labels are the job, the operator that a task is named after, and the number of the task; nothing else grows with the
run. Counters go on when a task is replaced: they add up its processes, and leave out the rows that a replay processes
again. After a rollback rows are processed, and so counted, twice. What operators and functions count themselves belongs
to their state: it counts once, also then.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from operator import itemgetter
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from clonos_py.model.coordinator_events import (
    CheckpointAborted,
    CheckpointCompleted,
    CheckpointSkipped,
    FirstNewEffect,
    Replayed,
    RolledBack,
    StandbyActivated,
    WentBack,
)
from clonos_py.model.counters import ProcessCounters
from clonos_py.model.ids import TaskId
from clonos_py.model.user_metrics import operator_and_name
from clonos_py.observe.events import (
    Detected,
    Event,
    Recovered,
    TaskFailed,
)
from clonos_py.observe.metrics import LatencyHistogram
from clonos_py.runtime.web.job_view import JobView, SeenProcess
from clonos_py.runtime.web.user_metrics import NeverFalling

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_PREFIX = "clonos_"
_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds of histograms of seconds."""
_PHASES = {
    Detected: "detected",
    StandbyActivated: "activated",
    Replayed: "replayed",
    FirstNewEffect: "first_new_effect",
    Recovered: "latency_normal",
}
_CAUSES = (
    ("killed by --kill", "ordered"),
    ("silent for the heartbeat timeout", "silent"),
    ("its node was lost", "node_lost"),
    ("the node is low on memory", "out_of_memory"),
    ("its process", "process_died"),
    ("it shared the process", "process_died"),
)
"""How a failure is labelled, by the beginning of what is known of it; anything else is ``other``."""


class _Summed(NamedTuple):
    """A counter of tasks: the total over their processes."""

    name: str
    help: str
    value: Callable[[ProcessCounters], float]


class _Present(NamedTuple):
    """A gauge of tasks, of their present process; None where it does not apply."""

    name: str
    help: str
    value: Callable[[SeenProcess], float | None]


_SUMMED = (
    _Summed("rows_in", "Rows received, or read by a source.", lambda c: c.rows_in - c.rows_replayed),
    _Summed("rows_out", "Rows sent.", lambda c: c.rows_out),
    _Summed("rows_replayed", "Rows that replays have processed again.", lambda c: c.rows_replayed),
    _Summed("data_bytes", "Bytes of rows sent to other tasks.", lambda c: c.data_bytes),
    _Summed("determinant_bytes", "Bytes of determinants sent to other tasks.", lambda c: c.determinant_bytes),
    _Summed("feed_bytes", "Bytes of state sent to standbys.", lambda c: c.feed_bytes),
    _Summed("cpu_seconds", "Processor time of the processes of a task.", lambda c: c.cpu_us / 1e6),
)


def _seconds(us: int | None) -> float | None:
    return None if us is None else us / 1e6


_PRESENT = (
    _Present(
        "watermark_lag_seconds", "How far the watermark is behind the clock.", lambda p: _seconds(p.counters.lag_us)
    ),
    _Present("source_lag_records", "Rows that a source has not read yet.", lambda p: p.counters.rows_waiting),
    _Present(
        "source_kept_bytes",
        "Bytes that a server keeps until a checkpoint covers them.",
        lambda p: p.counters.bytes_kept,
    ),
    _Present("busy_ratio", "Share of time with work.", lambda p: p.busy),
    _Present("back_pressure_ratio", "Share of time held back by receivers.", lambda p: p.share("held_back_us")),
    _Present("idle_ratio", "Share of time without anything to do.", lambda p: p.share("idle_us")),
    _Present(
        "in_flight_bytes", "Sent frames that are kept in memory for a replay.", lambda p: p.counters.in_flight_bytes
    ),
    _Present("spilled_bytes", "Sent frames that are kept on disk for a replay.", lambda p: p.counters.spilled_bytes),
    _Present("log_bytes", "Determinants held.", lambda p: p.counters.log_bytes),
    _Present("resident_memory_bytes", "Memory of the process.", lambda p: p.counters.resident_bytes or None),
    _Present("standby_lag_seconds", "How far standbys are behind.", lambda p: _seconds(p.counters.standby_lag_us)),
)


class JobMetrics(Collector):
    """The metrics of one run: a listener, too, for what only events tell."""

    def __init__(self, view: JobView) -> None:
        self._view = view
        self._job = view.plan.job
        self._registry = CollectorRegistry()
        self._registry.register(self)
        self._checkpoints = dict.fromkeys(("completed", "aborted", "skipped"), 0)
        self._durations = _Durations()
        self._failures = dict.fromkeys((*(how for _, how in _CAUSES), "other"), 0)
        self._recoveries = {phase: _Durations() for phase in _PHASES.values()}
        self._rollbacks = 0
        self._checkpoint_bytes = 0
        self._requests: Counter[str] = Counter()
        self._success_s: float | None = None
        self._never_falling = NeverFalling()

    def __call__(self, at_us: int, event: Event) -> None:
        """The view has taken the event before."""
        match event:
            case CheckpointCompleted():
                self._checkpoints["completed"] += 1
                self._durations.add(event.duration_ms / 1_000)
                self._checkpoint_bytes = event.bytes
                self._requests.update(event.requests)
                self._success_s = self._view.began.timestamp() + at_us / 1e6
            case CheckpointAborted():
                self._checkpoints["aborted"] += 1
            case CheckpointSkipped():
                self._checkpoints["skipped"] += 1
            case TaskFailed(how=how, planned=False):
                self._failures[cause(how)] += 1
            case RolledBack() | WentBack():
                self._rollbacks += 1
            case Detected() | StandbyActivated() | Replayed() | FirstNewEffect() | Recovered():
                recovery = self._view.status.recovery(event.task)
                if recovery is not None and not recovery.planned:
                    self._recoveries[_PHASES[type(event)]].add((at_us - recovery.failed_at_us) / 1e6)
            case _:
                pass

    def text(self) -> bytes:
        """All metrics, in the text format of Prometheus."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """What the counters of processes tell, looked up when it is asked for."""
        with self._view.lock:
            processes = dict(sorted(self._view.processes.items(), key=itemgetter(0)))
            recent = list(self._view.recent())
        present = {task: seen for task, _, seen in recent if seen.counters.active}
        standbys = sum(not seen.counters.active for _, _, seen in recent)
        yield from self._summed(processes)
        yield from self._present(present)
        yield from self._counted(processes)
        yield from self._states(present)
        yield self._latencies(processes)
        yield from self._events()
        yield self._gauge("standbys_ready", "Standbys that can take over.", standbys)
        yield self._gauge("checkpoint_size_bytes", "Bytes written for the last checkpoint.", self._checkpoint_bytes)
        if self._success_s is not None:
            yield self._gauge(
                "checkpoint_last_success_timestamp_seconds", "When the last checkpoint was complete.", self._success_s
            )

    def describe(self) -> Sequence[Metric]:
        """Nothing is looked up when the collector is registered."""
        return ()

    def _events(self) -> Iterator[Metric]:
        outcomes = CounterMetricFamily(_PREFIX + "checkpoints", "Checkpoints by outcome.", labels=["job", "outcome"])
        for outcome, amount in self._checkpoints.items():
            outcomes.add_metric([self._job, outcome], amount)
        yield outcomes
        requests = CounterMetricFamily(
            _PREFIX + "storage_requests", "Requests of checkpoints to an object store.", labels=["job", "operation"]
        )
        for operation, amount in self._requests.items():
            requests.add_metric([self._job, operation], amount)
        yield requests
        durations = HistogramMetricFamily(
            _PREFIX + "checkpoint_duration_seconds", "From the trigger of a checkpoint to its end.", labels=["job"]
        )
        durations.add_metric([self._job], *self._durations.shown())
        yield durations
        failures = CounterMetricFamily(_PREFIX + "failures", "Failures of tasks, by kind.", labels=["job", "how"])
        for how, amount in self._failures.items():
            failures.add_metric([self._job, how], amount)
        yield failures
        recoveries = HistogramMetricFamily(
            _PREFIX + "recovery_seconds", "From the failure of a task to a step of its recovery.",
            labels=["job", "phase"],
        )  # fmt: skip
        for phase, seen in self._recoveries.items():
            recoveries.add_metric([self._job, phase], *seen.shown())
        yield recoveries
        rollbacks = CounterMetricFamily(
            _PREFIX + "rollbacks", "Failures after which tasks that had not failed went back.", labels=["job"]
        )
        rollbacks.add_metric([self._job], self._rollbacks)
        yield rollbacks

    def _summed(self, processes: dict[tuple[TaskId, int], SeenProcess]) -> Iterator[Metric]:
        for counter in _SUMMED:
            totals: dict[TaskId, float] = {}
            for (task, _), seen in processes.items():
                if seen.counters.active:  # standbys have counted nothing, and share the processor time of theirs
                    totals[task] = totals.get(task, 0) + counter.value(seen.counters)
            family = CounterMetricFamily(_PREFIX + counter.name, counter.help, labels=["job", "operator", "task"])
            for task, total in totals.items():
                family.add_metric(self._labels(task), total)
            yield family

    def _present(self, present: dict[TaskId, SeenProcess]) -> Iterator[Metric]:
        for gauge in _PRESENT:
            family = GaugeMetricFamily(_PREFIX + gauge.name, gauge.help, labels=["job", "operator", "task"])
            for task, seen in present.items():
                if (value := gauge.value(seen)) is not None:
                    family.add_metric(self._labels(task), value)
            yield family

    def _counted(self, processes: dict[tuple[TaskId, int], SeenProcess]) -> Iterator[Metric]:
        family = CounterMetricFamily(
            _PREFIX + "operator_counts",
            "What operators count: late rows, dead letters, rows of sinks.",
            labels=["job", "operator", "task", "counter"],
        )
        # What a task's newest process has counted includes what its predecessors have.
        counters = ((task, seen.counters) for (task, _), seen in processes.items())
        for task, newest in {task: found for task, found in counters if found.counts or found.metrics}.items():
            self._never_falling.take(task, newest)
        for task, key, amount in self._never_falling.counts():
            operator, counter = operator_and_name(key)
            family.add_metric([self._job, operator, str(task.index), counter], amount)
        yield family
        yield from self._never_falling.families(_PREFIX, self._job)

    def _states(self, present: dict[TaskId, SeenProcess]) -> Iterator[Metric]:
        labels = ["job", "operator", "task"]
        rows = GaugeMetricFamily(_PREFIX + "state_rows", "Rows of state in the last snapshot.", labels=labels)
        sizes = GaugeMetricFamily(_PREFIX + "state_bytes", "Bytes of state in the last snapshot.", labels=labels)
        for task, seen in present.items():
            for operator, size in seen.counters.state.items():
                rows.add_metric([self._job, operator, str(task.index)], size.rows)
                sizes.add_metric([self._job, operator, str(task.index)], size.bytes)
        yield from (rows, sizes)

    def _latencies(self, processes: dict[tuple[TaskId, int], SeenProcess]) -> Metric:
        family = HistogramMetricFamily(
            _PREFIX + "latency_seconds",
            "From when an event should have been created until it reached a sink, sampled by markers.",
            labels=["job", "operator"],
        )
        merged: dict[str, LatencyHistogram] = {}
        for (task, _), seen in processes.items():
            if seen.counters.latency:
                merged.setdefault(task.vertex, LatencyHistogram()).merge(LatencyHistogram(seen.counters.latency))
        for operator, histogram in merged.items():
            durations = _Durations()
            for duration_us, times in histogram.durations():
                durations.add(duration_us / 1e6, times)
            family.add_metric([self._job, operator], *durations.shown())
        return family

    def _gauge(self, name: str, help: str, value: float) -> Metric:
        family = GaugeMetricFamily(_PREFIX + name, help, labels=["job"])
        family.add_metric([self._job], value)
        return family

    def _labels(self, task: TaskId) -> list[str]:
        return [self._job, task.vertex, str(task.index)]


def cause(how: str) -> str:
    """The label for how a task failed."""
    return next((label for beginning, label in _CAUSES if how.startswith(beginning)), "other")


class _Durations:
    """Durations in seconds, counted in the buckets that Prometheus gets."""

    def __init__(self) -> None:
        self._times = [0] * (len(_BOUNDS_S) + 1)
        self._total_s = 0.0

    def add(self, duration_s: float, times: int = 1) -> None:
        self._times[bisect_left(_BOUNDS_S, duration_s)] += times
        self._total_s += duration_s * times

    def shown(self) -> tuple[list[tuple[str, float]], float]:
        """Cumulated buckets by upper bound, and the sum of all durations."""
        bounds = (*map(floatToGoString, _BOUNDS_S), "+Inf")
        return list(zip(bounds, map(float, accumulate(self._times)), strict=True)), self._total_s
