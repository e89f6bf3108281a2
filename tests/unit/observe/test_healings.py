"""When latency is normal again: within a tenth of that before, for a second."""

from __future__ import annotations

from clonos_py.observe.metrics import LATENCY_WINDOW_US
from clonos_py.observe.normality import Healing, LatencyWindow, healings

MS, SECOND = 1_000, 1_000_000


def windows(*worst_ms: int, first_us: int = 0) -> list[LatencyWindow]:
    """Windows one after the other; 0 stands for a window without markers."""
    return [LatencyWindow(first_us + i * LATENCY_WINDOW_US, ms * MS) for i, ms in enumerate(worst_ms) if ms]


CALM = (20,) * 20


def test_latency_is_normal_when_windows_in_a_row_are_within_the_limit() -> None:
    late = (0, 0, 900, 24, 24, 24, 300, 23, 22, 20, 24)
    (healing,) = healings([(5 * SECOND, 5 * SECOND + 1)], windows(*CALM, *late))
    assert healing == Healing(20 * MS, 900 * MS, 5 * SECOND + 7 * LATENCY_WINDOW_US)


def test_latencies_before_the_new_process_is_at_work_do_not_count() -> None:
    (healing,) = healings([(5 * SECOND, 6 * SECOND)], windows(*CALM, 20, 20, 20, 20, 21, 21, 21, 21))
    assert healing.recovered_us == 6 * SECOND


def test_a_failure_during_a_recovery_is_measured_against_the_latency_before_both() -> None:
    late = (900, 800, 700, 900, 22, 22, 22, 22)
    again_us = 5 * SECOND + 3 * LATENCY_WINDOW_US
    failures = [(5 * SECOND, 5 * SECOND + 1), (again_us, again_us + 1)]
    first, second = healings(failures, windows(*CALM, *late))
    assert (first.normal_us, second.normal_us) == (20 * MS, 20 * MS)
    assert first.recovered_us == second.recovered_us == 5 * SECOND + 4 * LATENCY_WINDOW_US


def test_after_a_recovery_the_new_latency_is_normal() -> None:
    later = (900, 20, 20, 20, 20) + (40,) * 23 + (900, 42, 42, 42, 42)
    failures = [(5 * SECOND, 5 * SECOND + 1), (12 * SECOND, 12 * SECOND + 1)]
    _, second = healings(failures, windows(*CALM, *later))
    assert (second.normal_us, second.recovered_us) == (40 * MS, 12 * SECOND + LATENCY_WINDOW_US)


def test_without_latencies_before_or_after_there_are_no_figures() -> None:
    assert list(healings([(SECOND, 2 * SECOND)], [])) == [Healing(None, None, None)]
    (healing,) = healings([(5 * SECOND, None)], windows(*CALM, 20, 20))
    assert healing.recovered_us is None
