"""Standbys wait for the deployment of their job, and replacements of used ones for the recovery that used them."""

from __future__ import annotations

from clonos_py.job.events import StartProcess
from clonos_py.model.coordinator_events import Deployed, FirstNewEffect, TaskLost
from clonos_py.model.ids import TaskId
from clonos_py.model.times import MAX_TIME
from clonos_py.runtime.standby_starts import PATIENCE_US, StandbyStarts

JOIN, SOURCE = TaskId("join", 0), TaskId("source", 0)


def failing(*tasks: TaskId) -> StandbyStarts:
    starts = StandbyStarts()
    for task in tasks:
        starts.on_event(TaskLost(task, "killed"))
        starts.on_promoted(task)
    return starts


def test_processes_of_a_healthy_job_start_at_once() -> None:
    assert StandbyStarts().on_start(StartProcess(1, JOIN), 0) == [StartProcess(1, JOIN)]


def test_standbys_of_a_new_job_wait_until_all_of_its_tasks_run() -> None:
    starts = StandbyStarts(deploys=True)
    assert starts.on_start(StartProcess(1, JOIN), 0) == [StartProcess(1, JOIN)]
    assert starts.on_start(StartProcess(2, JOIN, shares=True), 0) == []
    assert starts.on_event(Deployed(1, 1)) == [StartProcess(2, JOIN, shares=True)]
    assert starts.on_start(StartProcess(3, JOIN, shares=True), 0) == [StartProcess(3, JOIN, shares=True)]


def test_a_standby_starts_before_its_job_is_deployed_if_the_process_of_its_task_dies() -> None:
    starts = StandbyStarts(deploys=True)
    starts.on_start(StartProcess(1, JOIN), 0)
    for number, task in ((2, JOIN), (3, SOURCE)):
        starts.on_start(StartProcess(number, task, shares=True), 0)
    assert starts.on_gone(1) == [StartProcess(2, JOIN, shares=True)]
    assert starts.on_event(Deployed(2, 2)) == [StartProcess(3, SOURCE, shares=True)]


def test_a_standby_starts_as_well_if_a_process_dies_that_was_started_ahead() -> None:
    starts = StandbyStarts(deploys=True)
    starts.on_prepared(1, JOIN)
    assert starts.on_start(StartProcess(2, JOIN, shares=True), 0) == []
    assert starts.on_gone(1) == [StartProcess(2, JOIN, shares=True)]


def test_a_new_standby_waits_until_all_replacements_have_had_an_effect() -> None:
    starts = failing(JOIN, SOURCE)
    assert starts.on_start(StartProcess(7, JOIN), 0) == []
    assert starts.on_event(FirstNewEffect(JOIN)) == []
    assert starts.on_event(FirstNewEffect(SOURCE)) == [StartProcess(7, JOIN)]
    assert starts.due_us == MAX_TIME


def test_a_new_standby_waits_for_a_limited_time() -> None:
    starts = failing(JOIN)
    assert starts.on_start(StartProcess(7, JOIN), 1_000) == []
    assert starts.due_us == 1_000 + PATIENCE_US
    assert starts.on_time(PATIENCE_US) == []
    assert starts.on_time(1_000 + PATIENCE_US) == [StartProcess(7, JOIN)]


def test_a_process_that_the_recovery_waits_for_starts_at_once() -> None:
    starts = StandbyStarts()
    starts.on_event(TaskLost(JOIN, "killed"))
    assert starts.on_start(StartProcess(7, JOIN), 0) == [StartProcess(7, JOIN)]


def test_a_waiting_process_starts_when_its_task_fails_again() -> None:
    starts = failing(JOIN)
    starts.on_start(StartProcess(7, JOIN), 0)
    assert starts.on_event(TaskLost(JOIN, "killed")) == [StartProcess(7, JOIN)]
