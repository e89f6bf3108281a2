"""Meters: histograms that merge without loss, rates over a window."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from clonos_py.observe.metrics import LatencyHistogram, RateMeter

durations = st.lists(st.integers(0, 10**12), min_size=1, max_size=50)


def histogram(values: list[int]) -> LatencyHistogram:
    filled = LatencyHistogram()
    for value in values:
        filled.record(value)
    return filled


@given(durations, st.sampled_from([1, 50, 90, 99, 100]))
def test_a_percentile_is_never_too_low_and_at_most_two_percent_too_high(values: list[int], percent: int) -> None:
    exact = sorted(values)[max(-(-len(values) * percent // 100) - 1, 0)]
    found = histogram(values).percentile_us(percent)
    assert found is not None
    assert exact <= found <= exact * 1.016 + 1


@given(durations, durations)
def test_merged_histograms_equal_the_histogram_of_all_values(left: list[int], right: list[int]) -> None:
    merged = histogram(left)
    merged.merge(LatencyHistogram(histogram(right).counts))
    assert merged.counts == histogram(left + right).counts


def test_an_empty_histogram_has_no_percentile() -> None:
    assert LatencyHistogram().percentile_us(50) is None


def test_a_duration_below_zero_counts_as_zero() -> None:
    assert histogram([-5]).percentile_us(100) == 0


def test_a_rate_is_that_of_the_window_and_not_of_the_whole_run() -> None:
    meter = RateMeter(window_us=1_000_000)
    for second, total in enumerate([0, 100, 1_100, 2_100]):
        meter.read(second * 1_000_000, total)
    assert meter.per_second == 1_000


def test_a_total_that_shrinks_restarts_the_window() -> None:
    meter = RateMeter()
    meter.read(0, 5_000)
    meter.read(1_000_000, 1_000)
    assert meter.per_second == 0
    meter.read(2_000_000, 1_200)
    assert meter.per_second == 200
