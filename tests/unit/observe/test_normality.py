from __future__ import annotations

from clonos_py.model.ids import TaskId
from clonos_py.observe.metrics import LatencyHistogram
from clonos_py.observe.normality import Normality

JOIN, MAP = TaskId("join", 0), TaskId("map", 1)


class Sink:
    """A histogram that only grows, read after each window."""

    def __init__(self) -> None:
        self.normality = Normality()
        self._histogram = LatencyHistogram()

    def window(self, *latencies_ms: float) -> list[TaskId]:
        for latency_ms in latencies_ms:
            self._histogram.record(round(latency_ms * 1_000))
        return list(self.normality.read(self._histogram.counts))


def test_a_task_has_recovered_when_the_worst_latency_is_what_it_was() -> None:
    sink = Sink()
    for _ in range(5):
        sink.window(20, 30)
    sink.normality.failed(JOIN)
    assert sink.window(25) == []
    sink.normality.effective(JOIN)
    assert sink.window(900, 20) == []
    assert sink.window(40) == []
    assert sink.window(33) == [JOIN]
    assert sink.window(30) == []


def test_a_window_without_markers_proves_nothing() -> None:
    sink = Sink()
    sink.window(10)
    sink.normality.failed(JOIN)
    sink.normality.effective(JOIN)
    assert sink.window() == []


def test_latencies_during_a_recovery_do_not_become_normal() -> None:
    sink = Sink()
    sink.window(10)
    sink.normality.failed(JOIN)
    sink.normality.effective(JOIN)
    for _ in range(50):
        assert sink.window(500) == []
    sink.normality.failed(MAP)
    assert sink.window(10) == [JOIN]
    sink.normality.effective(MAP)
    assert sink.window(10) == [MAP]


def test_without_a_time_before_nothing_is_claimed() -> None:
    sink = Sink()
    sink.normality.failed(JOIN)
    sink.normality.effective(JOIN)
    assert sink.window(1) == []
