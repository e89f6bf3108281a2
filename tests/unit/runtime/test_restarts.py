"""Replacements of used standbys wait for the recovery that used them."""

from __future__ import annotations

from clonos_py.job.events import StartProcess
from clonos_py.model.coordinator_events import FirstNewEffect, TaskLost
from clonos_py.model.ids import TaskId
from clonos_py.runtime.ray.restarts import PATIENCE_US, Restarts

JOIN, SOURCE = TaskId("join", 0), TaskId("source", 0)


def failing(*tasks: TaskId) -> Restarts:
    restarts = Restarts()
    for task in tasks:
        restarts.on_event(TaskLost(task, "killed"))
        restarts.on_promoted(task)
    return restarts


def test_processes_of_a_healthy_job_start_at_once() -> None:
    assert Restarts().on_start(StartProcess(1, JOIN), 0) == [StartProcess(1, JOIN)]


def test_a_new_standby_waits_until_all_replacements_have_had_an_effect() -> None:
    restarts = failing(JOIN, SOURCE)
    assert restarts.on_start(StartProcess(7, JOIN), 0) == []
    assert restarts.on_event(FirstNewEffect(JOIN)) == []
    assert restarts.on_event(FirstNewEffect(SOURCE)) == [StartProcess(7, JOIN)]
    assert restarts.due_us is None


def test_a_new_standby_waits_for_a_limited_time() -> None:
    restarts = failing(JOIN)
    assert restarts.on_start(StartProcess(7, JOIN), 1_000) == []
    assert restarts.due_us == 1_000 + PATIENCE_US
    assert restarts.on_time(PATIENCE_US) == []
    assert restarts.on_time(1_000 + PATIENCE_US) == [StartProcess(7, JOIN)]


def test_a_process_that_the_recovery_waits_for_starts_at_once() -> None:
    restarts = Restarts()
    restarts.on_event(TaskLost(JOIN, "killed"))
    assert restarts.on_start(StartProcess(7, JOIN), 0) == [StartProcess(7, JOIN)]


def test_a_waiting_process_starts_when_its_task_fails_again() -> None:
    restarts = failing(JOIN)
    restarts.on_start(StartProcess(7, JOIN), 0)
    assert restarts.on_event(TaskLost(JOIN, "killed")) == [StartProcess(7, JOIN)]
