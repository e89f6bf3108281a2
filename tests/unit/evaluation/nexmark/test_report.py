"""Reports: figures from the events of a run."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from clonos_py.evaluation.metrics import percentiles_ms
from clonos_py.evaluation.nexmark.report import Recorder, lines, report
from clonos_py.evaluation.nexmark.source import NexmarkSource
from clonos_py.model.coordinator_events import (
    CheckpointCompleted,
    CheckpointSkipped,
    Deployed,
    FirstNewEffect,
    Replayed,
    Restarted,
    RestartedWithoutLog,
    StandbyActivated,
)
from clonos_py.model.ids import Attempt, TaskId
from clonos_py.model.operators import EventTime
from clonos_py.model.plan import Edge, Partitioning, PhysicalPlan, SourcePlan, Vertex
from clonos_py.observe.events import Detected, KillMissed, Progress, Recovered, TaskFailed, VertexProgress
from clonos_py.observe.metrics import LatencyHistogram
from clonos_py.settings.protocols import ALIGNED
from tests.unit.observe.traces import measured, reading

JOIN = TaskId("join", 1)


def test_a_failure_is_reported_in_milliseconds_after_it() -> None:
    recorder = _recorded()
    (failure,) = report(recorder, _plan(), {})["failures"]
    assert failure == {
        "task": "join[1]", "how": "killed", "at_s": 4.0, "detected_ms": 20.0, "standby_activated_ms": 50.0,
        "replayed_ms": 300.0, "first_new_effect_ms": 310.0, "restart_ms": 290.0, "restarted_ms": 320.0,
        "tasks_restarted": 3, "latency_normal_ms": 900.0, "rows_replayed": 777,
        "attempt": "1.2",
    }  # fmt: skip


def test_a_report_is_plain_data_of_all_events() -> None:
    made = report(_recorded(), _plan(), {"parallelism": "2"}, LatencyHistogram())
    assert json.loads(json.dumps(made)) == made
    assert made["attempts_changed"] == ["join[1]"]
    assert (made["checkpoints"]["median_ms"], made["checkpoints"]["skipped"]) == (12.5, 1)
    assert made["bytes"] == {"data": 9_000, "determinants": 90, "retained": 100, "feed": 0}
    assert made["standby_lag_ms"] is None
    assert made["counts"] == {"join.late_rows": 3}
    assert made["restarts_without_log"] == [
        "exactly-once lost, rows sent since checkpoint 1 may count twice: an orphan"
    ]
    assert made["kills_missed"] == [{"task": "join[1]", "at_s": 60.0}]
    assert made["plan"]["shuffles"] == [{"from": "events", "to": "join", "by": ["id"], "columns": ["id"]}]
    assert made["throughput"]["events"] == 6_000
    assert next(iter(lines(made))) == "6,000 events, 1,000 events/s over 3.0 s"


def _recorded() -> Recorder:
    recorder = Recorder()
    recorder(1_000_000, Deployed(tasks=4, standbys=4))
    for second in range(1, 8):
        events = VertexProgress(vertex="events", parallelism=2, rows_in=(second - 1) * 1_000, rows_out=0)
        join = VertexProgress(vertex="join", parallelism=2, rows_in=5, rows_out=5)
        recorder(
            second * 1_000_000,
            Progress(
                vertices=(events, join),
                in_flight_bytes=100,
                determinant_bytes=90,
                data_bytes=9_000,
                counts={"join.late_rows": 3},
            ),
        )
    recorder(3_000_000, CheckpointCompleted(checkpoint=1, duration_ms=12.5, bytes=4))
    recorder(3_900_000, CheckpointSkipped(pending=2, pending_ms=700, asked_ms=500, in_a_row=1))
    recorder(4_000_000, TaskFailed(task=JOIN, how="killed"))
    recorder(4_020_000, Detected(task=JOIN))
    recorder(4_050_000, StandbyActivated(task=JOIN, attempt=Attempt(1, 2)))
    recorder(4_300_000, Replayed(task=JOIN, rows=777))
    recorder(4_310_000, FirstNewEffect(task=JOIN))
    recorder(4_320_000, Restarted(3))
    recorder(4_900_000, Recovered(task=JOIN))
    recorder(6_000_000, RestartedWithoutLog(checkpoint=1, reason="an orphan"))
    recorder(7_000_000, KillMissed(task=JOIN, after_us=60_000_000))
    return recorder


def _plan() -> PhysicalPlan:
    definition = NexmarkSource(events=100)
    schema = pa.schema([("id", pa.int64())])
    source = SourcePlan("events", lambda: definition.create((None, None, None)), (schema,), EventTime((None,)))
    vertices = (Vertex("events", 2, source, (), ()), Vertex("join", 2, None, (), ()))
    edge = Edge(0, "events", -1, 0, "join", 0, 0, Partitioning.HASH, ("id",), schema)
    return PhysicalPlan("nexmark-q8", vertices, (edge,), protocol=ALIGNED)


def test_latency_is_reported_per_second_and_in_total_without_the_warm_up() -> None:
    recorder, seen = Recorder(), LatencyHistogram()
    recorder(1_000_000, Deployed(tasks=1, standbys=0))
    for second, ms in ((1, 900), (2, 500), (3, 20), (4, 30)):
        seen.record(ms * 1_000)
        recorder(*measured(reading(second * 1_000_000, JOIN, 1, 0, seen.counts)))
    by_second = recorder.latency.per_second()
    assert [row["at_s"] for row in by_second] == [1, 2, 3, 4]
    assert [row["p50"] for row in by_second] == pytest.approx([900, 500, 20, 30], rel=0.016)
    assert percentiles_ms(recorder.steady_latency())["p99.9"] == pytest.approx(30, rel=0.016)
