"""Which failures the soak attributes to a coordinator that stood still."""

from __future__ import annotations

from clonos_py.bench.standstills import Standstill, TaskEvent, failures_caused

STILL = [Standstill(100.0, 104.0)]


def test_a_task_that_fails_without_harm_during_a_standstill_or_right_after_is_counted() -> None:
    found = failures_caused(STILL, [], [TaskEvent(99.0, "a[0]"), TaskEvent(104.5, "b[0]"), TaskEvent(106.0, "c[0]")])
    assert found == ["b[0] was replaced since the coordinator stood still for 4.0 s"]


def test_a_task_that_was_harmed_itself_is_not_counted() -> None:
    failed = [TaskEvent(104.1, "a[0]"), TaskEvent(104.1, "b[0]")]
    assert len(failures_caused(STILL, [TaskEvent(98.0, "a[0]")], failed)) == 1
    assert len(failures_caused(STILL, [TaskEvent(70.0, "a[0]")], failed)) == 2
    assert failures_caused(STILL, [TaskEvent(98.0, "")], failed) == []
