"""When latency is normal again: as low as before, for a second."""

from __future__ import annotations

from clonos_py.model.ids import TaskId
from clonos_py.observe.metrics import LatencyHistogram
from clonos_py.observe.normality import WINDOWS_GOOD, Normality

JOIN, MAP = TaskId("join", 0), TaskId("map", 1)


WINDOW_US = 250_000


class Sink:
    """A histogram that only grows, read after each window."""

    def __init__(self) -> None:
        self.normality = Normality()
        self._histogram = LatencyHistogram()
        self._now_us = 0

    def window(self, *latencies_ms: float) -> list[tuple[TaskId, int]]:
        """The tasks reported as recovered, and in which window the recovery began, counted from 0."""
        for latency_ms in latencies_ms:
            self._histogram.record(round(latency_ms * 1_000))
        found = list(self.normality.read(self._histogram.counts, self._now_us))
        self._now_us += WINDOW_US
        return [(task, at_us // WINDOW_US) for task, at_us in found]

    def good(self, latency_ms: float, windows: int = WINDOWS_GOOD) -> list[tuple[TaskId, int]]:
        """The result of the last of so many windows; the others have none."""
        assert [self.window(latency_ms) for _ in range(windows - 1)] == [[]] * (windows - 1)
        return self.window(latency_ms)


def test_a_task_has_recovered_when_the_worst_latency_is_that_of_before() -> None:
    sink = Sink()
    for _ in range(5):
        sink.window(20, 30)
    sink.normality.failed(JOIN)
    assert sink.good(25) == []
    sink.normality.effective(JOIN)
    assert sink.window(900, 20) == []
    assert sink.good(40) == []
    assert sink.good(33) == [(JOIN, 14)]
    assert sink.good(30) == []


def test_latencies_that_occurred_several_times_before_are_normal_and_a_single_one_is_not() -> None:
    sink = Sink()
    for worst in (700, 20, 20, 60, 20, 20, 70, 20):
        sink.window(20, worst)
    sink.normality.failed(JOIN)
    sink.normality.effective(JOIN)
    assert sink.good(90) == []
    assert sink.good(65) == [(JOIN, 12)]


def test_a_few_good_windows_are_not_enough_for_a_recovery() -> None:
    sink = Sink()
    sink.window(10)
    sink.normality.failed(JOIN)
    sink.normality.effective(JOIN)
    assert sink.good(10, WINDOWS_GOOD - 1) == []
    assert sink.window(900) == []
    assert sink.good(10) == [(JOIN, 5)]


def test_windows_without_markers_neither_confirm_nor_interrupt_a_recovery() -> None:
    sink = Sink()
    sink.window(10)
    sink.normality.failed(JOIN)
    sink.normality.effective(JOIN)
    for _ in range(WINDOWS_GOOD):
        assert sink.window() == []
    assert sink.good(10, WINDOWS_GOOD - 1) == []
    assert sink.window() == []
    assert sink.window(10) == [(JOIN, 5)]


def test_latencies_during_a_recovery_do_not_become_normal() -> None:
    sink = Sink()
    sink.window(10)
    sink.normality.failed(JOIN)
    sink.normality.effective(JOIN)
    for _ in range(50):
        assert sink.window(500) == []
    sink.normality.failed(MAP)
    assert sink.good(10) == [(JOIN, 51)]
    sink.normality.effective(MAP)
    assert sink.good(10) == [(MAP, 55)]


def test_without_windows_before_the_failure_no_recovery_is_reported() -> None:
    sink = Sink()
    sink.normality.failed(JOIN)
    sink.normality.effective(JOIN)
    assert sink.good(1) == []
