"""When a running job reports that latency is normal: the rule of ``healings``, once all processes have reported."""

from __future__ import annotations

from collections.abc import Sequence

from clonos_py.model.ids import TaskId
from clonos_py.observe.metrics import LATENCY_WINDOW_US, WorstLatencies
from clonos_py.observe.normality import REPORTED_US, WINDOWS_GOOD, Normality

JOIN, MAP = TaskId("join", 0), TaskId("map", 1)
_WAITS = REPORTED_US // LATENCY_WINDOW_US


class Sink:
    """Windows of one process, which it reports at the end of each."""

    def __init__(self) -> None:
        self.normality = Normality()
        self._number = 100

    def fail(self, *tasks: TaskId) -> None:
        for task in tasks:
            self.normality.failed(task, self._number * LATENCY_WINDOW_US)

    def show(self, task: TaskId) -> None:
        """The replacement has a first new effect."""
        self.normality.effective(task, self._number * LATENCY_WINDOW_US)

    def windows(self, *worst_ms: int) -> list[tuple[TaskId, int]]:
        """Windows one after the other; 0 stands for one without markers. Returns the tasks reported as recovered, and
        since which window, counted from 0."""
        return [found for ms in worst_ms for found in self._window(ms)]

    def _window(self, worst_ms: int) -> Sequence[tuple[TaskId, int]]:
        if worst_ms:
            self.normality.report({self._number: worst_ms * 1_000})
        self._number += 1
        found = self.normality.recoveries(self._number * LATENCY_WINDOW_US)
        return [(task, at_us // LATENCY_WINDOW_US - 100) for task, at_us in found]


CALM = (20,) * 20


def test_a_task_has_recovered_when_windows_in_a_row_are_good_and_all_processes_have_reported_them() -> None:
    sink = Sink()
    sink.windows(*CALM)
    sink.fail(JOIN)
    assert sink.windows(0, 0) == []
    sink.show(JOIN)
    assert sink.windows(900, *[22] * WINDOWS_GOOD, *[22] * (_WAITS - 1)) == []
    assert sink.windows(22) == [(JOIN, 23)]
    assert sink.windows(*[22] * 20) == [], "it is reported once"


def test_a_late_report_of_a_bad_window_counts() -> None:
    sink = Sink()
    sink.windows(*CALM)
    sink.fail(JOIN)
    sink.show(JOIN)
    assert sink.windows(*[20] * (WINDOWS_GOOD + 1)) == []
    sink.normality.report({122: 900_000})
    assert sink.windows(*[20] * (WINDOWS_GOOD + _WAITS)) == [(JOIN, 23)]


def test_windows_without_markers_neither_confirm_nor_interrupt_a_recovery() -> None:
    sink = Sink()
    sink.windows(*CALM)
    sink.fail(JOIN)
    sink.show(JOIN)
    assert sink.windows(*[0] * 20) == []
    assert sink.windows(20, 0, 20, 20, 0, 20, *[0] * (_WAITS - 1)) == []
    assert sink.windows(0) == [(JOIN, 40)]


def test_a_failure_during_a_recovery_is_measured_against_the_latency_before_both() -> None:
    sink = Sink()
    sink.windows(*CALM)
    sink.fail(JOIN)
    sink.show(JOIN)
    assert sink.windows(*[500] * 50) == []
    sink.fail(MAP)
    sink.show(MAP)
    assert sink.windows(500, *[20] * (WINDOWS_GOOD + _WAITS)) == [(JOIN, 71), (MAP, 71)]


def test_a_task_that_fails_again_recovers_once() -> None:
    sink = Sink()
    sink.windows(*CALM)
    sink.fail(JOIN)
    sink.show(JOIN)
    sink.windows(900)
    sink.fail(JOIN)
    assert sink.windows(*[20] * 20) == [], "its second replacement has shown nothing"
    sink.show(JOIN)
    assert sink.windows(*[20] * (WINDOWS_GOOD + _WAITS)) == [(JOIN, 41)]


def test_a_task_whose_sinks_get_no_markers_is_not_followed_for_ever() -> None:
    sink = Sink()
    sink.windows(*CALM)
    sink.fail(JOIN)
    sink.windows(*[0] * 2_400, 900)
    sink.show(JOIN)
    assert sink.windows(*CALM) == []


def test_without_windows_before_the_failure_no_recovery_is_reported() -> None:
    sink = Sink()
    sink.fail(JOIN)
    sink.show(JOIN)
    assert sink.windows(*CALM) == []


def test_a_process_keeps_the_worst_latency_of_each_of_its_last_windows() -> None:
    worst = WorstLatencies()
    for number, duration_us in ((100, 5), (100, 9), (101, 3), (100, 2), (119, 1)):
        worst.record(number * LATENCY_WINDOW_US, duration_us)
    assert worst.windows == {100: 9, 101: 3, 119: 1}
    worst.record(121 * LATENCY_WINDOW_US, 4)
    assert worst.windows == {119: 1, 121: 4}
