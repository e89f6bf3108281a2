"""The figures of a hand-made trace are those computed in the head."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from clonos_py.evaluation.spark.analysis import analyse
from clonos_py.evaluation.spark.session import named_errors
from clonos_py.model.coordinator_events import Deployed
from clonos_py.model.errors import SparkError
from clonos_py.observe.trace import TraceWriter
from tests.unit.observe.traces import HEADER, SECOND, SOURCE, measured, reading, write

_BUCKET = 0.016


@pytest.fixture(scope="module")
def figures(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return analyse(spark, write(tmp_path_factory.mktemp("traces") / "trace", deploying_us=3_200_000))


def test_latency_has_percentiles_for_every_second(figures: dict[str, Any]) -> None:
    by_second = {row["at_s"]: row for row in figures["latency_ms"]["per_second"]}
    assert sorted(by_second) == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
    third = by_second[3]
    assert third["markers"] == 40
    assert [third[name] for name in ("p50", "p95", "p99", "max")] == pytest.approx([10, 10, 50, 50], rel=_BUCKET)
    sixth = by_second[6]
    assert (sixth["markers"], sixth["p50"]) == (40, pytest.approx(100, rel=_BUCKET))
    assert sixth["max"] == pytest.approx(800, rel=_BUCKET)


def test_latency_that_a_failure_disturbed_can_be_left_out(figures: dict[str, Any]) -> None:
    latency = figures["latency_ms"]
    assert latency["overall"]["max"] == pytest.approx(800, rel=_BUCKET)
    assert latency["undisturbed"]["max"] == pytest.approx(50, rel=_BUCKET)
    assert latency["overall"]["markers"] - latency["undisturbed"]["markers"] == 40


def test_throughput_counts_the_events_that_sources_read_in_each_second(figures: dict[str, Any]) -> None:
    throughput = figures["throughput"]
    assert throughput["events"] == 10_500
    assert throughput["steady_events_per_s"] == 1_000
    assert [row["events"] for row in throughput["per_second"]] == [1_000] * 10 + [500]


def test_the_overhead_is_all_bytes_over_bytes_of_rows(figures: dict[str, Any]) -> None:
    sent = figures["bytes"]
    assert (sent["data"], sent["determinants"], sent["overhead"]) == (1_050_000, 52_500, pytest.approx(1.05))


def test_checkpoints_are_timed_from_trigger_to_durable(figures: dict[str, Any]) -> None:
    found = figures["checkpoints"]
    assert (found["aborted"], found["skipped"]) == (1, 2)
    assert (found["completed"], found["median_ms"], found["max_ms"]) == (2, 200, 300)
    assert [row["triggered_s"] for row in found["all"]] == pytest.approx([1.9, 3.7])


def test_a_failure_is_reported_with_its_steps_its_restart_and_its_recovery(figures: dict[str, Any]) -> None:
    (failure,) = figures["failures"]
    assert (failure["task"], failure["how"], failure["at_s"]) == ("window[0]", "killed by --kill", 5.2)
    steps = [failure[f"{step}_ms"] for step in ("detected", "activated", "replayed", "first_new_effect")]
    assert steps == [20, 50, 300, 350]
    assert (failure["restart_ms"], failure["recovery_ms"], failure["rows_replayed"]) == (330, 1_550, 700)
    assert failure["latency_before_ms"] == pytest.approx(10, rel=_BUCKET)
    assert failure["latency_worst_ms"] == pytest.approx(800, rel=_BUCKET)


def test_a_killed_run_is_reported_as_such_and_repeated_reads_do_not_count(spark: SparkSession, tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path / "trace", HEADER)
    writer(0, Deployed(tasks=2, standbys=2))
    for second in (1, 2, 3):
        writer(*measured(reading(second * SECOND, SOURCE, 1, 100 * second)))
    writer(*measured(reading(4 * SECOND, SOURCE, 9, 350, replayed=300)))
    writer.close()
    found = analyse(spark, tmp_path / "trace")
    assert (found["ending"], found["failures"], found["latency_ms"]["overall"]) == ("unknown", [], None)
    assert found["throughput"]["per_second"][3] == {"at_s": 3, "events": 50, "replayed": 300}
    assert found["throughput"]["events"] == 350


def test_a_part_that_is_no_parquet_file_is_named(spark: SparkSession, tmp_path: Path) -> None:
    trace = write(tmp_path / "trace", deploying_us=3_200_000)
    part = sorted(trace.glob("readings/*.parquet"))[0]
    part.write_bytes(b"junk")
    with pytest.raises(SparkError, match=f"{part.name} is not a Parquet file"), named_errors(str(trace)):
        analyse(spark, trace)
