"""The report of a query's run, as text and as JSON.

``Recorder`` collects the events of the run. ``report`` turns them into plain data: throughput in steady state (from a
warm-up after deployment to the last progress before the sources ended), checkpoints, bytes, the plan, and the recovery
from every failure, in milliseconds after the failure.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from clonos_py.model.coordinator_events import Deployed
from clonos_py.model.plan import Partitioning, PhysicalPlan
from clonos_py.observe.events import Event, Measured, Progress
from clonos_py.observe.metrics import LatencyHistogram
from clonos_py.observe.status import Recovery, RunStatus, restart_text, unready_text

WARM_UP_US = 2_000_000
PERCENTS = (50, 95, 99, 99.9)


class RateSample(NamedTuple):
    """The events that all sources have read until a time, and the CPU time of all task processes until then (0 if tasks
    have no processes of their own)."""

    at_us: int
    events: int
    cpu_us: int = 0


class Recorder:
    """A listener that collects the data for a report."""

    def __init__(self) -> None:
        self.status = RunStatus()
        self.progress: list[tuple[int, Progress]] = []
        """(Time, progress)."""
        self.deployed_us = 0
        self.held_back: dict[str, list[bool]] = {}
        """By vertex: whether a task was held back by back-pressure, for each reading."""
        self._latency: dict[int, LatencyHistogram] = {}
        self._totals: dict[int, LatencyHistogram] = {}

    def __call__(self, at_us: int, event: Event) -> None:
        self.status.on(at_us, event)
        if isinstance(event, Deployed):
            self.deployed_us = at_us
        if isinstance(event, Progress):
            self.progress.append((at_us, event))
        if isinstance(event, Measured):
            self._measure(event)

    def _measure(self, event: Measured) -> None:
        for reading in event.readings:
            counters = reading.counters
            newest, earlier = LatencyHistogram(counters.latency), self._totals.get(reading.process, LatencyHistogram())
            self._totals[reading.process] = newest
            self._latency.setdefault(reading.at_us // 1_000_000, LatencyHistogram()).merge(newest.since(earlier))
            if counters.active:
                self.held_back.setdefault(reading.task.vertex, []).append(counters.held_back)

    def steady_latency(self) -> LatencyHistogram:
        """The latency of the markers that arrived after the warm-up; of all if the run is too short."""
        warm = [found for second, found in self._latency.items() if second * 1_000_000 >= self.deployed_us + WARM_UP_US]
        merged = LatencyHistogram()
        for found in warm or self._latency.values():
            merged.merge(found)
        return merged

    def latency_per_second(self) -> list[dict[str, float]]:
        """Percentiles in milliseconds of the markers that arrived in each second since the run began, if any did."""
        return [
            {"at_s": second, **{name: ms for name, ms in latencies(found).items() if ms is not None}}
            for second, found in sorted(self._latency.items())
            if found.total
        ]

    def samples(self, sources: Iterable[str]) -> list[RateSample]:
        """The events that the vertices ``sources`` had read, at each progress event."""
        names = set(sources)
        return [
            RateSample(at_us, sum(v.rows_in for v in p.vertices if v.vertex in names), p.cpu_us)
            for at_us, p in self.progress
        ]


def report(
    recorder: Recorder, plan: PhysicalPlan, settings: Mapping[str, str], latency: LatencyHistogram | None = None
) -> dict[str, Any]:
    """The whole report, as plain data for JSON."""
    status = recorder.status
    samples = recorder.samples(vertex.name for vertex in plan.vertices if vertex.source is not None)
    return {
        "job": plan.job,
        "settings": dict(settings),
        "seconds": round(status.at_us / 1e6, 3),
        "deployed_s": round(recorder.deployed_us / 1e6, 3),
        "throughput": throughput(samples, recorder.deployed_us),
        "cpu_us_per_event": cpu_us_per_event(samples, recorder.deployed_us),
        "latency_ms": latencies(latency),
        "latency_steady_ms": latencies(recorder.steady_latency()),
        "latency_ms_per_second": recorder.latency_per_second(),
        "back_pressure": {vertex: round(statistics.mean(seen), 3) for vertex, seen in recorder.held_back.items()},
        "checkpoints": _checkpoints(status),
        "bytes": _bytes(status),
        "counts": dict(status.progress.counts) if status.progress else {},
        "plan": _plan(plan),
        "failures": [_failure(recovery) for recovery in status.recoveries],
        "kills_missed": [{"task": str(kill.task), "at_s": kill.after_us / 1e6} for kill in status.kills_missed],
        "standbys_unready": [unready_text(event) for event in status.standbys_unready],
        "rollbacks": len(status.rollbacks),
        "restarts_without_log": [restart_text(event) for event in status.restarts_without_log],
        "attempts_changed": sorted({str(r.task) for r in status.recoveries if r.attempt is not None}),
    }


def throughput(samples: Sequence[RateSample], deployed_us: int, warm_up_us: int = WARM_UP_US) -> dict[str, Any]:
    """Events per second: in steady state, and in each second after deployment. Steady state is the time from the
    warm-up to the last sample before reading stopped. A run too short for that counts as a whole, from its deployment,
    or from its start if everything was read by then."""
    measured = _steady(samples, deployed_us, warm_up_us)
    return {
        "events": samples[-1].events if samples else 0,
        "steady_events_per_s": _rate(measured),
        "steady_seconds": round((measured[-1].at_us - measured[0].at_us) / 1e6, 3) if measured else 0.0,
        "per_second": [round(rate) for rate in _per_second(_since(samples, deployed_us))],
    }


def cpu_us_per_event(samples: Sequence[RateSample], deployed_us: int, warm_up_us: int = WARM_UP_US) -> float | None:
    """CPU time of all task processes per event in steady state; None if tasks have no processes of their own, or no
    reads were measured."""
    measured = _steady(samples, deployed_us, warm_up_us)
    if not measured or measured[-1].cpu_us == measured[0].cpu_us or measured[-1].events == measured[0].events:
        return None
    return (measured[-1].cpu_us - measured[0].cpu_us) / (measured[-1].events - measured[0].events)


def _steady(samples: Sequence[RateSample], deployed_us: int, warm_up_us: int) -> Sequence[RateSample]:
    read = _since(samples, deployed_us)
    reading = [a for a, b in itertools.pairwise(read) if b.events > a.events]
    steady = [sample for sample in reading if sample.at_us >= deployed_us + warm_up_us]
    if len(steady) > 1:
        return steady
    return read if reading else samples


def _since(samples: Sequence[RateSample], deployed_us: int) -> Sequence[RateSample]:
    return [sample for sample in samples if sample.at_us >= deployed_us]


def latencies(histogram: LatencyHistogram | None) -> dict[str, float | None]:
    """Percentiles in milliseconds; None if no marker arrived."""
    found = {percent: histogram.percentile_us(percent) if histogram else None for percent in PERCENTS}
    return {f"p{percent:g}": None if us is None else us / 1000 for percent, us in found.items()}


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


def _rate(samples: Sequence[RateSample]) -> float:
    if len(samples) < 2 or samples[-1].at_us == samples[0].at_us:
        return 0.0
    return round((samples[-1].events - samples[0].events) / (samples[-1].at_us - samples[0].at_us) * 1e6, 1)


def _per_second(samples: Sequence[RateSample]) -> Iterator[float]:
    """The rate of each second, between the first samples of consecutive seconds."""
    begin = samples[0].at_us if samples else 0
    firsts = [next(group) for _, group in itertools.groupby(samples, lambda s: (s.at_us - begin) // 1_000_000)]
    yield from (_rate(pair) for pair in itertools.pairwise(firsts))


def _checkpoints(status: RunStatus) -> dict[str, Any]:
    durations = [checkpoint.duration_ms for checkpoint in status.checkpoints]
    return {
        "completed": len(durations),
        "aborted": len(status.aborted),
        "skipped": len(status.skipped),
        "median_ms": statistics.median(durations) if durations else None,
        "max_ms": max(durations, default=None),
        "durations_ms": durations,
        "bytes": sum(checkpoint.bytes for checkpoint in status.checkpoints),
    }


def _bytes(status: RunStatus) -> dict[str, int]:
    last = status.progress
    return {
        "data": last.data_bytes if last else 0,
        "determinants": last.determinant_bytes if last else 0,
        "retained": last.in_flight_bytes if last else 0,
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
        "restarted_ms": recovery.restarted_ms,
        "tasks_restarted": recovery.tasks_restarted,
        "latency_normal_ms": recovery.recovered_ms,
        "rows_replayed": recovery.rows_replayed,
        "attempt": None if recovery.attempt is None else str(recovery.attempt),
    }
