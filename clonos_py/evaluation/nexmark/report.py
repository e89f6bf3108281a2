"""The report of a query's run, as text and as JSON.

``Recorder`` collects the events of the run. ``report`` turns them into plain data: throughput in steady state (from a
warm-up after deployment to the last progress before the sources ended), checkpoints, bytes, the plan, and the recovery
from every failure, in milliseconds after the failure.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from clonos_py.evaluation.metrics import (
    WARM_UP_US,
    LatencyMarkers,
    RateSample,
    cpu_us_per_event,
    durations_ms,
    percentiles_ms,
    samples,
    throughput,
)
from clonos_py.model.coordinator_events import Deployed
from clonos_py.model.plan import Partitioning, PhysicalPlan
from clonos_py.observe.events import Event, Measured, Progress
from clonos_py.observe.metrics import LatencyHistogram
from clonos_py.observe.status import Recovery, RunStatus, restart_text, unready_text

FORMAT = 1
"""The format of a report, which rises when a field changes its meaning."""


class Recorder:
    """A listener that collects the data for a report."""

    def __init__(self) -> None:
        self.status = RunStatus.of_all()
        self.progress: list[tuple[int, Progress]] = []
        """(Time, progress)."""
        self.deployed_us = 0
        self.held_back: dict[str, list[bool]] = {}
        """By vertex: whether a task was held back by back-pressure, for each reading."""
        self.latency = LatencyMarkers()

    def __call__(self, at_us: int, event: Event) -> None:
        self.status.on(at_us, event)
        if isinstance(event, Deployed):
            self.deployed_us = at_us
        if isinstance(event, Progress):
            self.progress.append((at_us, event))
        if isinstance(event, Measured):
            self.latency.take(event)
            for reading in event.readings:
                if reading.counters.active:
                    self.held_back.setdefault(reading.task.vertex, []).append(reading.counters.held_back)

    def steady_latency(self) -> LatencyHistogram:
        """The latency of the markers that arrived after the warm-up; of all if the run is too short."""
        warm = self.latency.between(self.deployed_us + WARM_UP_US)
        return warm if warm.total else self.latency.between(0)

    def samples(self, sources: Iterable[str]) -> list[RateSample]:
        """The events that the vertices ``sources`` had read, at each progress event."""
        return samples(self.progress, set(sources))


def report(
    recorder: Recorder, plan: PhysicalPlan, settings: Mapping[str, str], latency: LatencyHistogram | None = None
) -> dict[str, Any]:
    """The whole report, as plain data for JSON."""
    status = recorder.status
    read = recorder.samples(vertex.name for vertex in plan.vertices if vertex.source is not None)
    return {
        "format": FORMAT,
        "job": plan.job,
        "settings": dict(settings),
        "seconds": round(status.at_us / 1e6, 3),
        "deployed_s": round(recorder.deployed_us / 1e6, 3),
        "throughput": throughput(read, recorder.deployed_us),
        "cpu_us_per_event": cpu_us_per_event(read, recorder.deployed_us),
        "latency_ms": percentiles_ms(latency),
        "latency_steady_ms": percentiles_ms(recorder.steady_latency()),
        "latency_ms_per_second": recorder.latency.per_second(),
        "back_pressure": {vertex: round(statistics.mean(seen), 3) for vertex, seen in recorder.held_back.items()},
        "checkpoints": _checkpoints(status),
        "interval": None if status.interval is None else msgspec.to_builtins(status.interval),
        "bytes": _bytes(status),
        "standby_lag_ms": _standby_lag_ms(status),
        "extent": status.progress.extent if status.progress else None,
        "replay_rows": status.progress.replay_rows if status.progress else None,
        "counts": dict(status.progress.counts) if status.progress else {},
        "plan": _plan(plan),
        "failures": [_failure(recovery) for recovery in status.recoveries],
        "kills_missed": [{"task": str(kill.task), "at_s": kill.after_us / 1e6} for kill in status.kills_missed],
        "standbys_unready": [unready_text(event) for event in status.standbys_unready],
        "rollbacks": len(status.rollbacks),
        "restarts_without_log": [restart_text(event) for event in status.restarts_without_log],
        "attempts_changed": sorted({str(r.task) for r in status.recoveries if r.attempt is not None}),
    }


def lines(report: Mapping[str, Any]) -> Iterator[str]:
    """A summary of the report in a few lines of text."""
    rate, latency, checkpoints = report["throughput"], report["latency_ms"], report["checkpoints"]
    yield f"{rate['events']:,} events, {rate['steady_events_per_s']:,.0f} events/s over {rate['steady_seconds']:.1f} s"
    if latency["p50"] is not None:
        yield "latency " + ", ".join(f"{name} {ms:,.1f} ms" for name, ms in latency.items())
    if checkpoints["completed"]:
        yield (
            f"{checkpoints['completed']} checkpoints, {checkpoints['median_ms']:,.0f} ms in the median, "
            f"{checkpoints['max_ms']:,.0f} ms at most"
        )
    if report["bytes"]["data"]:
        yield f"{report['bytes']['data']:,} bytes of data, {report['bytes']['determinants']:,} bytes of determinants"


def _checkpoints(status: RunStatus) -> dict[str, Any]:
    durations = [checkpoint.duration_ms for checkpoint in status.checkpoints]
    costs = [checkpoint.cost_ms for checkpoint in status.checkpoints if checkpoint.cost_ms is not None]
    return {
        "completed": len(durations),
        "aborted": len(status.aborted),
        "skipped": len(status.skipped),
        **durations_ms(durations),
        "durations_ms": durations,
        "cost_ms": round(statistics.median(costs), 3) if costs else None,
        "bytes": sum(checkpoint.bytes for checkpoint in status.checkpoints),
    }


def _standby_lag_ms(status: RunStatus) -> float | None:
    """How far standbys were behind at last; None if they were not fed."""
    lag_us = status.progress.standby_lag_us if status.progress else None
    return None if lag_us is None else lag_us / 1e3


def _bytes(status: RunStatus) -> dict[str, int]:
    last = status.progress
    return {
        "data": last.data_bytes if last else 0,
        "determinants": last.determinant_bytes if last else 0,
        "retained": last.in_flight_bytes if last else 0,
        "feed": last.feed_bytes if last else 0,
    }


def _plan(plan: PhysicalPlan) -> dict[str, Any]:
    shuffles = [edge for edge in plan.edges if edge.partitioning is not Partitioning.FORWARD]
    return {
        "tasks": len(plan.tasks),
        "shuffles": [
            {"from": edge.source, "to": edge.target, "by": list(edge.keys), "columns": edge.schema.names}
            for edge in shuffles
        ],
        "notes": list(plan.notes),
    }


def _failure(recovery: Recovery) -> dict[str, Any]:
    return {
        "task": str(recovery.task),
        "how": recovery.how,
        "at_s": round(recovery.failed_at_us / 1e6, 3),
        "detected_ms": recovery.detected_ms,
        "standby_activated_ms": recovery.activated_ms,
        "replayed_ms": recovery.replayed_ms,
        "first_new_effect_ms": recovery.first_new_effect_ms,
        "restart_ms": recovery.restart_ms,
        "restarted_ms": recovery.restarted_ms,
        "tasks_restarted": recovery.tasks_restarted,
        "latency_normal_ms": recovery.recovered_ms,
        "rows_replayed": recovery.rows_replayed,
        "attempt": None if recovery.attempt is None else str(recovery.attempt),
    }
