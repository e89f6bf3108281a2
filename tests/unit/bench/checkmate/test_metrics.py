"""Numbers of a run from the events that a listener got."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from clonos_py.bench.checkmate.metrics import Span, measured
from clonos_py.model.coordinator_events import CheckpointCompleted, Deployed, Restarted, SnapshotDurable, WentBack
from clonos_py.model.counters import ProcessCounters
from clonos_py.observe.events import Detected, Event, Measured, ProcessReading, Progress, TaskFailed, VertexProgress
from clonos_py.observe.metrics import LatencyHistogram
from tests.unit.job.stage import MIDDLE, SINK, SOURCE, chain

MS = 1_000
SECOND = 1_000 * MS
DEPLOYED, WARM_UP_S, SECONDS = 3 * SECOND, 2.0, 20.0
BEGIN = DEPLOYED + 2 * SECOND
KILLED, NORMAL = BEGIN + 6 * SECOND, BEGIN + 9 * SECOND
QUARTER = 250 * MS


def calm(until_s: float = 24.0, rate: int = 1_000) -> Iterator[tuple[int, Event]]:
    """Progress and a latency of 10 ms each quarter of a second; 500 ms between kill and ``NORMAL``. Of each event
    there are 100 bytes of rows, of a tenth of them stamps, and half as many determinants."""
    histogram = LatencyHistogram()
    for at_us in range(DEPLOYED, DEPLOYED + round(until_s * SECOND), QUARTER):
        rows = min((at_us - DEPLOYED) * rate // SECOND, round((WARM_UP_S + SECONDS) * rate))
        histogram.record(500 * MS if KILLED <= at_us < NORMAL else 10 * MS)
        counters = ProcessCounters(active=True, latency=histogram.counts)
        yield at_us, Measured((ProcessReading(at_us, SINK, 7, counters),))
        vertices = (
            VertexProgress(vertex="source", parallelism=1, rows_in=rows, rows_out=rows),
            VertexProgress(vertex="middle", parallelism=1, rows_in=9 * rows, rows_out=rows),
        )
        yield (
            at_us,
            Progress(
                vertices=vertices,
                in_flight_bytes=0,
                data_bytes=100 * rows,
                stamp_bytes=10 * rows,
                determinant_bytes=5 * rows,
            ),
        )


def found(*events: tuple[int, Event], calm_events: Iterator[tuple[int, Event]] | None = None) -> dict[str, object]:
    everything = [(DEPLOYED, Deployed(2, 2)), *(calm_events or calm()), *events]
    return measured(sorted(everything, key=lambda timed: timed[0]), chain(), Span(WARM_UP_S, SECONDS))


def failure(*events: tuple[int, Event]) -> dict[str, object]:
    metrics = found((KILLED, TaskFailed(task=MIDDLE, how="killed by --kill")), *events)["failure"]
    assert isinstance(metrics, dict)
    return metrics


def test_throughput_counts_the_events_that_sources_read_after_the_warm_up() -> None:
    assert found()["throughput_events_per_s"] == pytest.approx(1_000, rel=0.01)


def test_a_run_that_finishes_early_has_the_same_throughput() -> None:
    events = list(calm())
    cut = [timed for timed in events if timed[0] < BEGIN + 10 * SECOND]
    last = next(event for _, event in reversed(cut) if isinstance(event, Progress))
    idle = [(BEGIN + 10 * SECOND + step * QUARTER, last) for step in range(20)]
    metrics = found(calm_events=iter([*cut, *idle]))
    assert metrics["throughput_events_per_s"] == pytest.approx(1_000, rel=0.01)


def test_overhead_is_all_bytes_divided_by_those_of_rows() -> None:
    metrics = found()
    assert metrics["overhead"] == pytest.approx(1.15)
    assert metrics["bytes"] == {"rows": 2_000_000, "stamps": 200_000, "determinants": 100_000}


def test_latency_before_a_failure_is_reported_separately() -> None:
    metrics = found((KILLED, TaskFailed(task=MIDDLE, how="killed by --kill")))
    assert metrics["latency_undisturbed_ms"] == dict.fromkeys(
        ("p50", "p95", "p99", "p99.9"), pytest.approx(10, rel=0.02)
    )
    assert metrics["latency_ms"]["p99"] == pytest.approx(500, rel=0.02)  # type: ignore[index]
    seconds = metrics["latency_ms_per_second"]
    assert isinstance(seconds, list)
    assert [second["at_s"] for second in seconds] == list(range(20))
    assert [second["at_s"] for second in seconds if second["p50"] > 100] == [6, 7, 8]


def test_only_checkpoints_of_the_measured_time_count() -> None:
    metrics = found(
        (DEPLOYED + SECOND, CheckpointCompleted(1, 900.0, 0, 2, 0, 1, 800.0)),
        (BEGIN + SECOND, CheckpointCompleted(2, 120.0, 0, 2, 1, 2, 15.0)),
        (BEGIN + 5 * SECOND, CheckpointCompleted(3, 140.0, 0, 3, 2, 1, 60.0)),
        (BEGIN + 25 * SECOND, CheckpointCompleted(4, 900.0, 0, 2, 2, 1, 800.0)),
    )
    assert metrics["checkpointing_ms"] == {"count": 3, "mean": 30.0}
    assert metrics["adoption_ms"] == {"count": 2, "mean": 130.0}
    assert metrics["checkpoints"] == {"snapshots": 5, "forced": 3, "manifests": 2, "aborted": 0}
    assert metrics["failure"] is None


def test_the_duration_of_checkpoints_after_a_failure_does_not_count() -> None:
    metrics = found(
        (BEGIN + SECOND, CheckpointCompleted(1, 120.0, 0, 2, 1, 2, 15.0)),
        (KILLED, TaskFailed(task=MIDDLE, how="killed by --kill")),
        (KILLED + SECOND, CheckpointCompleted(2, 900.0, 0, 3, 2, 1, 800.0)),
    )
    assert metrics["checkpointing_ms"] == {"count": 2, "mean": 15.0}
    assert metrics["adoption_ms"] == {"count": 1, "mean": 120.0}
    assert metrics["checkpoints"]["snapshots"] == 5  # type: ignore[index]


def test_restart_lasts_from_detection_to_the_last_task_and_recovery_from_kill_to_normal_latency() -> None:
    metrics = failure((KILLED + 20 * MS, Detected(MIDDLE)), (KILLED + 95 * MS, Restarted(4)))
    assert (metrics["task"], metrics["at_s"]) == ("middle[0]", 6.0)
    assert metrics["detected_ms"] == 20.0
    assert metrics["restart_ms"] == 75.0
    assert metrics["tasks_restarted"] == 4
    assert metrics["recovery_ms"] == pytest.approx((NORMAL - KILLED) / MS, abs=250)


def test_figures_of_events_that_did_not_happen_are_none() -> None:
    metrics = failure((KILLED + 20 * MS, Detected(MIDDLE)))
    assert (metrics["restart_ms"], metrics["recovery_ms"], metrics["tasks_restarted"]) == (None, None, None)


def test_invalid_snapshots_are_those_ahead_of_the_line_at_the_failure() -> None:
    metrics = failure((KILLED + 30 * MS, WentBack(2, 0, 40)), (KILLED + 40 * MS, WentBack(5, 3, 40)))
    assert (metrics["invalid"], metrics["durable"]) == (3, 40)


def test_the_expected_invalid_checkpoints_follow_from_the_times_of_durable_snapshots() -> None:
    """The newest snapshot of the sink, which goes back with the task before it, is ahead; snapshots of the source, and
    those stored after the failure, do not count."""
    stored = [(SOURCE, -9), (MIDDLE, -8), (SINK, -7), (MIDDLE, -4), (SINK, -5), (SINK, -3), (SOURCE, -1), (MIDDLE, 1)]
    events = [(KILLED + second * SECOND, SnapshotDurable(task)) for task, second in stored]
    metrics = failure(*events, (KILLED + 30 * MS, WentBack(2, 1, 7)))
    assert (metrics["invalid"], metrics["expected"], metrics["durable"]) == (1, 1, 7)
    assert failure(*events)["expected"] is None, "nothing went back"


def test_with_logs_no_snapshot_is_invalid() -> None:
    metrics = failure(
        (BEGIN, CheckpointCompleted(1, 1.0, 0, 6)), (KILLED + 5 * SECOND, CheckpointCompleted(2, 1.0, 0, 6))
    )
    assert (metrics["invalid"], metrics["durable"]) == (0, 6)


def test_a_run_without_events_has_no_numbers() -> None:
    metrics = measured([], chain(), Span(1.0, 1.0))
    assert metrics["throughput_events_per_s"] is None
    assert metrics["overhead"] is None
    assert metrics["checkpointing_ms"] is None
    assert metrics["latency_ms"] == {"p50": None, "p95": None, "p99": None, "p99.9": None}
