"""Standbys that share a process, killed with real SIGKILLs."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import ray

from clonos_py.model.coordinator_events import (
    CheckpointCompleted,
    CoordinatorReplaced,
    Deployed,
    RolledBack,
    StandbyActivated,
)
from clonos_py.model.ids import TaskId
from clonos_py.observe.events import Event, TaskFailed
from clonos_py.runtime.ray.actors import ProcessPlace
from clonos_py.runtime.ray.cluster import Cluster
from clonos_py.runtime.ray.run import run
from clonos_py.settings.resolution import resolve
from tests.ray.counting_job import assert_exactly_once, counting
from tests.ray.test_ray_jobs import of
from tests.waiting import WAIT_S_MAX, wait_until

pytestmark = pytest.mark.ray

COUNT, AUDIT = TaskId("count", 0), TaskId("audit", 1)


def places() -> list[ProcessPlace]:
    found: list[ProcessPlace] = ray.get(ray.get_actor("counting", namespace="clonos").processes.remote())
    return found


def standbys_by_pid() -> Counter[int]:
    return Counter(place.pid for place in places() if not place.active)


def pid(task: TaskId, active: bool) -> int:
    return next(place.pid for place in places() if place.task == task and place.active == active)


def await_standbys(standbys: int) -> None:
    """Waits until so many stand by, none of them in the process of a task."""

    def up() -> bool:
        now = places()
        tasks = {place.pid for place in now if place.active}
        waiting = [place for place in now if not place.active]
        return len(waiting) == standbys and tasks.isdisjoint(place.pid for place in waiting)

    wait_until(up, places)


class Course:
    """Listens to a run and, once it is deployed, executes its steps one after the other in a thread of its own. Rows
    come paced until the last step is done."""

    def __init__(self, *steps: Callable[[Course], None]) -> None:
        self.events: list[Event] = []
        self.problem: BaseException | None = None
        self._steps = steps
        self._heard = threading.Condition()
        self._thread = threading.Thread(target=self._act)

    def __call__(self, at_us: int, event: Event) -> None:
        with self._heard:
            self.events.append(event)
            self._heard.notify_all()
        if isinstance(event, Deployed):
            self._thread.start()

    def _act(self) -> None:
        try:
            for step in self._steps:
                step(self)
        except BaseException as problem:  # noqa: BLE001 - raised again by ``run``
            self.problem = problem
        finally:
            self.unpaced.touch()

    def wait_for(self, kind: type[Event], times: int) -> None:
        with self._heard:
            assert self._heard.wait_for(lambda: len(of(self.events, kind)) >= times, WAIT_S_MAX)

    def run(self, folder: Path, total: int, **settings: object) -> None:
        """Raises the error of a step."""
        self.unpaced = folder / "unpaced"
        given = {"checkpoint_interval": "1s", "standbys_per_process": 6, **settings}
        standbys = int(str(given.pop("standbys", 1)))
        run(counting(str(folder), total, 2_000, standbys), resolve(command_line=given), self)
        self._thread.join()
        if self.problem is not None:
            raise self.problem


@pytest.mark.thorough
def test_a_standby_in_a_shared_process_is_promoted_there_and_the_others_start_elsewhere(
    cluster: Cluster, tmp_path: Path
) -> None:
    shared: list[int] = []

    def all_share_one(course: Course) -> None:
        await_standbys(6)
        assert list(standbys_by_pid().values()) == [6]
        shared.extend(standbys_by_pid())

    def kill_a_task(course: Course) -> None:
        os.kill(pid(COUNT, active=True), signal.SIGKILL)
        course.wait_for(StandbyActivated, 1)

    def it_is_alone_now(course: Course) -> None:
        await_standbys(6)
        assert pid(COUNT, active=True) == shared[0]
        assert shared[0] not in standbys_by_pid()
        assert max(standbys_by_pid().values()) == 6

    course = Course(all_share_one, kill_a_task, it_is_alone_now)
    course.run(tmp_path, 100_000)
    assert [event.task for event in course.events if isinstance(event, StandbyActivated)] == [COUNT]
    assert of(course.events, RolledBack) == []
    assert_exactly_once(tmp_path, 100_000)


def test_each_standby_of_a_shared_process_that_dies_is_replaced(cluster: Cluster, tmp_path: Path) -> None:
    """Then two tasks die at once whose standbys share the new process, and move apart."""

    def kill_the_standbys(course: Course) -> None:
        await_standbys(6)
        (first,) = standbys_by_pid()
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: first not in standbys_by_pid())
        await_standbys(6)
        assert of(course.events, StandbyActivated) == [], "no task is to be replaced"

    def kill_two_tasks(course: Course) -> None:
        for task in (COUNT, AUDIT):
            os.kill(pid(task, active=True), signal.SIGKILL)
        course.wait_for(StandbyActivated, 2)
        assert pid(COUNT, active=True) == pid(AUDIT, active=True)

    def they_move_apart(course: Course) -> None:
        course.wait_for(StandbyActivated, 3)
        assert pid(COUNT, active=True) != pid(AUDIT, active=True)

    course = Course(kill_the_standbys, kill_two_tasks, they_move_apart)
    course.run(tmp_path, 100_000)
    failed = [event for event in course.events if isinstance(event, TaskFailed)]
    assert Counter(event.task for event in failed if not event.planned) == {COUNT: 1, AUDIT: 1}
    assert [event.task in (COUNT, AUDIT) for event in failed if event.planned] == [True]
    assert of(course.events, RolledBack) == []
    assert_exactly_once(tmp_path, 100_000)


@pytest.mark.thorough
def test_two_standbys_of_each_task_share_two_processes_and_the_coordinator_is_lost(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Its successor takes over the shared processes; two tasks that die at once are replaced in two processes."""

    def lose_the_coordinator(course: Course) -> None:
        await_standbys(12)
        assert sorted(standbys_by_pid().values()) == [6, 6]
        course.wait_for(CheckpointCompleted, 1)
        coordinator: Any = ray.get_actor("counting", namespace="clonos")
        os.kill(ray.get(coordinator.pid.remote()), signal.SIGKILL)
        course.wait_for(CoordinatorReplaced, 1)
        await_standbys(12)
        assert sorted(standbys_by_pid().values()) == [6, 6]

    def kill_two_tasks(course: Course) -> None:
        for task in (COUNT, AUDIT):
            os.kill(pid(task, active=True), signal.SIGKILL)
        course.wait_for(StandbyActivated, 2)
        assert pid(COUNT, active=True) != pid(AUDIT, active=True)
        await_standbys(12)

    course = Course(lose_the_coordinator, kill_two_tasks)
    course.run(tmp_path, 100_000, standbys=2)
    assert of(course.events, RolledBack) == []
    assert_exactly_once(tmp_path, 100_000)
