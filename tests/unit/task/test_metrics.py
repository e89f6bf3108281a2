"""Metrics of a task: latency markers cover every delay."""

from __future__ import annotations

from typing import cast

import pytest

from clonos_py.task.context import TaskContext
from clonos_py.task.metrics import MARKER_INTERVAL_US, TaskMetrics
from clonos_py.task.outputs import Outputs
from tests.unit.task.plans import UP, three

NOW_US = 1_000_000_000
STALL_US = 5_000_000


@pytest.fixture
def metrics() -> TaskMetrics:
    return TaskMetrics(cast("TaskContext", None), Outputs(three(), UP), True)


def created(metrics: TaskMetrics, now_us: int, due_us: int) -> list[int]:
    return [event.marker_us for event in metrics.source_marker(now_us, due_us)]


def test_a_source_without_a_schedule_sends_markers_at_the_marker_interval(metrics: TaskMetrics) -> None:
    markers = [us for millisecond in range(1_000) for us in created(metrics, NOW_US + millisecond * 1_000, 0)]
    assert len(markers) == 1_000_000 // MARKER_INTERVAL_US


def test_after_a_stall_every_missed_marker_is_sent_with_its_delay(metrics: TaskMetrics) -> None:
    markers = [us for due_us in range(NOW_US - STALL_US, NOW_US, 20_000) for us in created(metrics, NOW_US, due_us)]
    late_us = [NOW_US - marker_us for marker_us in markers]
    assert late_us == list(range(STALL_US, 0, -MARKER_INTERVAL_US))
