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

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from clonos_py.bench.checkmate.invalid import ahead_of_line
from clonos_py.checkpoint.line import line_channels
from clonos_py.evaluation.metrics import LatencyMarkers, events_per_s, percentiles_ms, reading, samples
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
from clonos_py.observe.metrics import LATENCY_WINDOW_US, LatencyHistogram
from clonos_py.observe.normality import LatencyWindow, healings

_SECOND_US = 1_000_000

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
    markers = LatencyMarkers(event for _, event in _of(events, Measured))
    failed_us = min((at_us for at_us, _ in _of(events, TaskFailed)), default=None)
    calm_us = end_us if failed_us is None else min(failed_us, end_us)
    completed = [event for at_us, event in _of(within, CheckpointCompleted) if at_us <= calm_us]
    sent = _bytes(within)
    return {
        "throughput_events_per_s": _rate(within, sources),
        "latency_ms": percentiles_ms(markers.between(begin_us, end_us)),
        "latency_undisturbed_ms": percentiles_ms(markers.between(begin_us, calm_us)),
        "latency_ms_per_second": markers.per_second(begin_us, end_us),
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
    measured = reading(samples(_of(events, Progress), sources), 0)
    return events_per_s(measured) if measured else None


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


def _failure(
    events: Timed, plan: PhysicalPlan, begin_us: int, failed_us: int, markers: LatencyMarkers
) -> dict[str, Any]:
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


def _normal_us(markers: LatencyMarkers, failed_us: int, restarted_us: int | None) -> int | None:
    """When latency was normal again."""
    (healing,) = healings([(failed_us, restarted_us)], _worst_by_window(markers.found))
    return healing.recovered_us


def _worst_by_window(markers: Iterable[tuple[int, LatencyHistogram]]) -> list[LatencyWindow]:
    """The windows in which markers arrived, by time."""
    found: dict[int, LatencyWindow] = {}
    for at_us, histogram in sorted(markers, key=lambda marker: marker[0]):
        window, worst_us = at_us // LATENCY_WINDOW_US, histogram.percentile_us(100) or 0
        before = found.get(window, LatencyWindow(at_us, 0))
        found[window] = before._replace(worst_us=max(before.worst_us, worst_us))
    return [*found.values()]
