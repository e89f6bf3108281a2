"""Computes the metrics of one run from the events that a listener received. Each metric has one definition. No I/O.

============================ =========================================================================================
``throughput_events_per_s``  events that the sources read per second, from the end of the warm-up to the end of the run
``latency_ms``               percentiles of the latency of markers that reached a sink in that time, from when their
                             event was due
``latency_undisturbed_ms``   the same until the kill, or until the end if there is no kill
``latency_ms_per_second``    the same for each second since the end of the warm-up (figures 9 and 10)
``checkpointing_ms``         mean time from the trigger until durable, before the kill: of all snapshots if they are
                             coordinated, else of each snapshot alone that a trigger asked for
``adoption_ms``              mean time from the (first) trigger until the manifest is written, before the kill
``checkpoints``              snapshots that were adopted in that time, how many of them were forced, and manifests
``failure.at_s``             when the task was killed, since the end of the warm-up
``failure.detected_ms``      from the kill until the coordinator detected the failure
``failure.restart_ms``       from the detection until the last restarted task has sent a frame or written a row. With
                             causal recovery, one that its predecessor had not, so that the replay is included
``failure.recovery_ms``      from the kill until latency is normal: in four consecutive quarters of a second the worst
                             latency is within 10% (and 2 ms) of what it was before, or no worse than at times without
                             a failure
``failure.invalid``          snapshots that were durable at the failure and ahead of the recovery line
``failure.expected``         the same as ``invalid``, computed only from the times at which snapshots became durable
                             (E13); None unless tasks take snapshots alone and roll back
``failure.durable``          snapshots that were durable at the failure, since the job began
``bytes``                    sent between tasks in that time: rows, stamps of the protocol, determinants
``overhead``                 all bytes per byte of rows: 1.0 means no overhead. The few messages to and from the
                             coordinator are left out: they do not grow with the data
============================ =========================================================================================

A metric that cannot be determined is None, for example if no failure happened or latency never became normal.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from clonos_py.bench.checkmate.invalid import ahead_of_line
from clonos_py.checkpoint.line import line_channels
from clonos_py.model.coordinator_events import (
    CheckpointAborted,
    CheckpointCompleted,
    Deployed,
    Restarted,
    RolledBack,
    SnapshotDurable,
    WentBack,
)
from clonos_py.model.ids import TaskId
from clonos_py.model.plan import PhysicalPlan
from clonos_py.observe.definitions import overhead, recovery_ms, restart_ms, span_ms
from clonos_py.observe.events import Detected, Event, KillMissed, Measured, Progress, TaskFailed
from clonos_py.observe.metrics import LatencyHistogram
from clonos_py.observe.normality import WINDOWS_GOOD, limit_us

PERCENTS = (50, 95, 99)
_SECOND_US = 1_000_000
_WINDOW_US = 250_000
_BEFORE_US = 5 * _SECOND_US

E = TypeVar("E")
Timed = Sequence[tuple[int, Event]]
"""Events in order, each with the time at which the listener received it, in microseconds."""


@dataclass(frozen=True)
class Span:
    """The part of a run that is measured: it begins ``warm_up_s`` after the deployment and lasts ``seconds``."""

    warm_up_s: float
    seconds: float


def measured(events: Timed, plan: PhysicalPlan, span: Span) -> dict[str, Any]:
    """All metrics of a run as plain data for JSON."""
    sources = {vertex.name for vertex in plan.vertices if vertex.source is not None}
    begin_us = min(_of(events, Deployed), key=_at, default=(0, None))[0] + round(span.warm_up_s * _SECOND_US)
    end_us = begin_us + round(span.seconds * _SECOND_US)
    within = [(at_us, event) for at_us, event in events if begin_us <= at_us <= end_us]
    markers = list(_markers(events))
    failed_us = min((at_us for at_us, _ in _of(events, TaskFailed)), default=None)
    calm_us = end_us if failed_us is None else min(failed_us, end_us)
    completed = [event for at_us, event in _of(within, CheckpointCompleted) if at_us <= calm_us]
    sent = _bytes(within)
    return {
        "throughput_events_per_s": _rate(within, sources),
        "latency_ms": _latency(markers, begin_us, end_us),
        "latency_undisturbed_ms": _latency(markers, begin_us, calm_us),
        "latency_ms_per_second": list(_by_second(markers, begin_us, end_us)),
        "checkpointing_ms": _mean([(event.durable, event.durable_ms) for event in completed]),
        "adoption_ms": _mean([(1, event.duration_ms) for event in completed]),
        "checkpoints": _checkpoints(within),
        "failure": None if failed_us is None else _failure(events, plan, begin_us, failed_us, markers),
        "kills_missed": len(list(_of(events, KillMissed))),
        "rollbacks": len(list(_of(events, RolledBack))),
        "bytes": sent,
        "overhead": message_overhead(sent),
    }


def _of(events: Timed, kind: type[E]) -> Iterator[tuple[int, E]]:
    return ((at_us, event) for at_us, event in events if isinstance(event, kind))


def _at(timed: tuple[int, object]) -> int:
    return timed[0]


# ---- rates and bytes


def _rate(events: Timed, sources: Collection[str]) -> float | None:
    """Events per second until the last time at which the sources had read more. A run that ends early is not slower."""
    read = [
        (at_us, sum(vertex.rows_in for vertex in progress.vertices if vertex.vertex in sources))
        for at_us, progress in _of(events, Progress)
    ]
    most = max((rows for _, rows in read), default=0)
    until = next((place for place, (_, rows) in enumerate(read) if rows == most), 0)
    if until == 0:
        return None
    (first_us, first), (last_us, last) = read[0], read[until]
    return round((last - first) / (last_us - first_us) * _SECOND_US, 1)


def _bytes(events: Timed) -> dict[str, int]:
    progress = [event for _, event in _of(events, Progress)]
    if not progress:
        return {"rows": 0, "stamps": 0, "determinants": 0}
    first, last = progress[0], progress[-1]
    return {
        "rows": last.data_bytes - first.data_bytes,
        "stamps": last.stamp_bytes - first.stamp_bytes,
        "determinants": last.determinant_bytes - first.determinant_bytes,
    }


# ---- latency

Markers = Sequence[tuple[int, LatencyHistogram]]
"""The new latencies that a process has reported, each with the time of the report in microseconds."""


def _markers(events: Timed) -> Iterator[tuple[int, LatencyHistogram]]:
    totals: dict[int, LatencyHistogram] = {}
    for _, event in _of(events, Measured):
        for reading in event.readings:
            newest = LatencyHistogram(reading.counters.latency)
            new = newest.since(totals.get(reading.process, LatencyHistogram()))
            totals[reading.process] = newest
            if new.total:
                yield reading.at_us, new


def _merged(markers: Markers, begin_us: int, end_us: int) -> LatencyHistogram:
    merged = LatencyHistogram()
    for at_us, found in markers:
        if begin_us <= at_us < end_us:
            merged.merge(found)
    return merged


def _latency(markers: Markers, begin_us: int, end_us: int) -> dict[str, float | None]:
    merged = _merged(markers, begin_us, end_us)
    found = {percent: merged.percentile_us(percent) for percent in PERCENTS}
    return {f"p{percent}": None if us is None else us / 1_000 for percent, us in found.items()}


def _by_second(markers: Markers, begin_us: int, end_us: int) -> Iterator[dict[str, float | None]]:
    for second, since_us in enumerate(range(begin_us, end_us, _SECOND_US)):
        found = _latency(markers, since_us, since_us + _SECOND_US)
        if found["p50"] is not None:
            yield {"at_s": second, **found}


# ---- checkpoints


def _mean(means: Sequence[tuple[int, float]]) -> dict[str, float] | None:
    """The total count and mean of durations in milliseconds, from the count and mean of each part."""
    count = sum(count for count, _ in means)
    if not count:
        return None
    return {"count": count, "mean": round(sum(count * mean for count, mean in means) / count, 3)}


def _checkpoints(events: Timed) -> dict[str, int]:
    completed = [event for _, event in _of(events, CheckpointCompleted)]
    return {
        "snapshots": sum(event.snapshots for event in completed),
        "forced": sum(event.forced for event in completed),
        "manifests": len(completed),
        "aborted": len(list(_of(events, CheckpointAborted))),
    }


# ---- the failure


def message_overhead(sent: Mapping[str, float]) -> float | None:
    """``sent``: bytes by kind, as in the metric ``bytes``."""
    return overhead(sent["rows"], sum(sent.values()) - sent["rows"])


def _failure(events: Timed, plan: PhysicalPlan, begin_us: int, failed_us: int, markers: Markers) -> dict[str, Any]:
    detected_us = min((at_us for at_us, _ in _of(events, Detected)), default=None)
    restarted_us, restarted = min(_of(events, Restarted), key=_at, default=(None, None))
    went_back = [event for _, event in _of(events, WentBack)]
    durable = sum(event.snapshots for at_us, event in _of(events, CheckpointCompleted) if at_us <= failed_us)
    victim = next(event.task for _, event in _of(events, TaskFailed))
    return {
        "task": str(victim),
        "at_s": round((failed_us - begin_us) / 1e6, 3),
        "detected_ms": span_ms(failed_us, detected_us),
        "restart_ms": restart_ms(detected_us, restarted_us),
        "tasks_restarted": None if restarted is None else restarted.tasks,
        "recovery_ms": recovery_ms(failed_us, _normal_us(markers, failed_us, restarted_us)),
        "invalid": max((event.invalid for event in went_back), default=0),
        "expected": _expected(events, plan, victim, failed_us) if went_back else None,
        "durable": max((event.durable for event in went_back), default=durable),
    }


def _expected(events: Timed, plan: PhysicalPlan, victim: TaskId, failed_us: int) -> int:
    """Computes ``failure.expected`` over the failed task and all tasks downstream of it, which roll back with it."""
    times: dict[TaskId, list[int]] = {task: [] for task in (victim, *plan.hops[victim])}
    for at_us, event in _of(events, SnapshotDurable):
        if at_us <= failed_us and event.task in times:
            times[event.task].append(at_us)
    return ahead_of_line(times, line_channels(plan))


def _normal_us(markers: Markers, failed_us: int, restarted_us: int | None) -> int | None:
    """When latency was normal again: the start of the first of enough good windows in a row, after the restart."""
    if restarted_us is None:
        return None
    worst = _worst_by_window(markers)
    before = [us for at_us, us in worst.items() if failed_us - _BEFORE_US <= at_us <= failed_us - _WINDOW_US]
    if not before:
        return None
    most_us = limit_us(before)
    later = [(at_us, us) for at_us, us in worst.items() if at_us + _WINDOW_US > restarted_us]
    for first in range(len(later) - WINDOWS_GOOD + 1):
        if all(us <= most_us for _, us in later[first : first + WINDOWS_GOOD]):
            return max(later[first][0], restarted_us)
    return None


def _worst_by_window(markers: Markers) -> Mapping[int, int]:
    """The worst latency of each window, by the start of the window, in order."""
    found: dict[int, int] = {}
    for at_us, histogram in sorted(markers, key=_at):
        window_us = at_us // _WINDOW_US * _WINDOW_US
        found[window_us] = max(found.get(window_us, 0), histogram.percentile_us(100) or 0)
    return found
