"""Hand-made traces: events that a run might report, with figures that one can compute in the head."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from clonos_py.model.coordinator_events import (
    CheckpointAborted,
    CheckpointCompleted,
    CheckpointSkipped,
    Deployed,
    Finished,
    FirstNewEffect,
    Replayed,
    StandbyActivated,
)
from clonos_py.model.counters import ProcessCounters
from clonos_py.model.ids import Attempt, TaskId
from clonos_py.observe import events as e
from clonos_py.observe.metrics import LatencyHistogram
from clonos_py.observe.trace import TraceWriter

SOURCE, SINK = TaskId("bids", 0), TaskId("window", 0)
MS, SECOND = 1_000, 1_000_000
HEADER = {
    "job": "by-hand",
    "began": "2026-01-01T00:00:00+00:00",
    "settings": {"runtime": "ray", "parallelism": "1", "guarantee": "exactly-once", "sharing_depth": "full"},
    "vertices": [
        {"name": "bids", "parallelism": 1, "source": True},
        {"name": "window", "parallelism": 1, "source": False},
    ],
    "edges": [{"from": "bids", "to": "window", "feedback": False}],
}
FAILED_US = 5_200_000
_LATE_MS = {6_000: 800, 6_250: 400, 6_500: 100}
"""What markers took after the failure, by when they arrived."""
_QUARTER = 250


def reading(
    at_us: int, task: TaskId, process: int, rows: int, latency: Mapping[int, int] | None = None, replayed: int = 0
) -> e.ProcessReading:
    """A row takes 100 bytes and its share of the log 5."""
    counters = ProcessCounters(
        active=True, rows_in=rows, rows_replayed=replayed, rows_out=rows, frames_queued=rows % 7,
        frames_sent=rows // 100, data_bytes=100 * rows, determinant_bytes=5 * rows, in_flight_bytes=rows,
        log_bytes=rows // 2, cpu_us=rows, latency=dict(latency or {}),
    )  # fmt: skip
    return e.ProcessReading(at_us, task, process, counters)


def measured(*readings: e.ProcessReading) -> tuple[int, e.Measured]:
    """An event with its time, as listeners get it."""
    return readings[-1].at_us, e.Measured(readings)


def story() -> Iterator[tuple[int, e.Event]]:
    """A source reads 1,000 rows a second for ten and a half; markers take 10 ms, one of 40 in the fourth second 50 ms;
    the window fails at 5.2 s, and late markers arrive from 6 s on until all is well at 6.75 s."""
    yield 0, Deployed(tasks=2, standbys=2)
    seen = {process: LatencyHistogram() for process in (2, 3)}
    for at_ms in range(_QUARTER, 10_500 + 1, _QUARTER):
        process = 2 if at_ms * MS < FAILED_US else 3
        if at_ms % 500 == 0:
            yield measured(reading(at_ms * MS, SOURCE, 1, at_ms))
        if process == 2 or at_ms >= min(_LATE_MS):
            seen[process].record(_LATE_MS.get(at_ms, 10) * MS, 9)
            seen[process].record((50 if at_ms == 3_500 else _LATE_MS.get(at_ms, 10)) * MS)
            # The markers of a quarter arrived before its report.
            yield measured(reading(at_ms * MS, SINK, process, 0, seen[process].counts))
        yield from _happenings(at_ms)
    yield 10_500 * MS, Finished()


def _happenings(at_ms: int) -> Iterator[tuple[int, e.Event]]:
    if at_ms == 2_000:
        yield 2_000 * MS, CheckpointCompleted(checkpoint=1, duration_ms=100.0, bytes=1_000)
    if at_ms == 4_000:
        yield 4_000 * MS, CheckpointCompleted(checkpoint=2, duration_ms=300.0, bytes=500)
    if at_ms == 5_250:
        yield FAILED_US, e.TaskFailed(task=SINK, how="killed by --kill")
        yield FAILED_US + 20 * MS, e.Detected(task=SINK)
        yield FAILED_US + 50 * MS, StandbyActivated(task=SINK, attempt=Attempt(1, 1))
        yield FAILED_US + 50 * MS, CheckpointAborted(checkpoint=3, reason="window[0] failed")
        for late in (1, 2):
            yield FAILED_US + 50 * MS, CheckpointSkipped(pending=3, pending_ms=late, asked_ms=1, in_a_row=late)
        yield FAILED_US + 300 * MS, Replayed(task=SINK, rows=700)
        yield FAILED_US + 350 * MS, FirstNewEffect(task=SINK)


def write(folder: Path, deploying_us: int = 0) -> Path:
    """The story as a trace, after so much time of deployment."""
    writer = TraceWriter(folder, HEADER)
    for at_us, event in story():
        writer(at_us + deploying_us, _later(event, deploying_us))
    writer.close()
    return folder


def _later(event: e.Event, by_us: int) -> e.Event:
    if isinstance(event, e.Measured):
        return replace(event, readings=tuple(replace(r, at_us=r.at_us + by_us) for r in event.readings))
    return event
