"""Figures that reports, traces and benchmarks share."""

from __future__ import annotations

import pytest

from clonos_py.evaluation.metrics import RateSample, cpu_us_per_event, percentiles_ms, reading, throughput
from clonos_py.observe.metrics import LatencyHistogram


def test_steady_state_excludes_deployment_warm_up_and_time_after_the_last_read() -> None:
    samples = [RateSample(5_000_000, 0), RateSample(6_000_000, 50)]
    samples += [RateSample(second * 1_000_000, (second - 6) * 1_000) for second in range(7, 17)]
    samples += [RateSample(30_000_000, 10_500)]
    found = throughput(samples, deployed_us=5_000_000)
    assert found["steady_events_per_s"] == 1_000
    assert found["steady_seconds"] == 9
    assert found["events"] == 10_500
    assert found["per_second"][:4] == [50, 950, 1_000, 1_000]


def test_a_short_run_counts_as_a_whole() -> None:
    found = throughput(
        [RateSample(1_000_000, 0), RateSample(1_500_000, 300), RateSample(2_000_000, 600)], deployed_us=1_000_000
    )
    assert found["steady_events_per_s"] == 600


def test_a_run_that_read_everything_before_it_was_deployed_counts_from_its_start() -> None:
    samples = [RateSample(0, 0, 5_000), RateSample(1_000_000, 500, 9_000), RateSample(1_500_000, 500, 9_500)]
    found = throughput(samples, deployed_us=900_000)
    assert (found["steady_events_per_s"], found["steady_seconds"]) == (333.3, 1.5)
    assert cpu_us_per_event(samples, deployed_us=900_000) == 9


def test_a_run_without_observed_reads_has_no_cpu_time_per_event() -> None:
    samples = [RateSample(1_000_000, 500, 5_000), RateSample(1_500_000, 500, 9_500)]
    assert throughput(samples, deployed_us=900_000)["steady_events_per_s"] == 0
    assert cpu_us_per_event(samples, deployed_us=900_000) is None


def test_a_run_without_progress_has_no_throughput() -> None:
    assert throughput([], deployed_us=0) == {
        "events": 0, "steady_events_per_s": 0.0, "steady_seconds": 0.0, "per_second": [],
    }  # fmt: skip


def test_latencies_are_percentiles_in_milliseconds() -> None:
    histogram = LatencyHistogram()
    for milliseconds in range(1, 101):
        histogram.record(milliseconds * 1_000)
    found = percentiles_ms(histogram)
    assert found["p50"] == pytest.approx(50, rel=0.02)
    assert found["p99"] == pytest.approx(99, rel=0.02)
    assert percentiles_ms(None)["p50"] is None


def test_cpu_time_per_event_is_that_of_the_steady_state() -> None:
    samples = [
        RateSample(second * 1_000_000, second * 100, second * 700 + (5_000 if second > 1 else 0)) for second in range(9)
    ]
    assert cpu_us_per_event(samples, deployed_us=0) == 7
    assert cpu_us_per_event([sample._replace(cpu_us=0) for sample in samples], deployed_us=0) is None


def test_a_run_in_which_reading_was_seen_only_once_has_no_rate() -> None:
    samples = [RateSample(0, 0), RateSample(1_000_000, 500), RateSample(2_000_000, 500)]
    assert reading(samples, 0) == []
    assert reading([*samples, RateSample(3_000_000, 900)], 0) == [samples[0], samples[2]]
