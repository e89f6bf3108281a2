"""Jobs on real actors, killed with real SIGKILLs."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest
import ray

from clonos_py.bench.fault_injector import wake
from clonos_py.model.coordinator_events import (
    CheckpointCompleted,
    CoordinatorReplaced,
    Deployed,
    Finished,
    FirstNewEffect,
    Replayed,
    RolledBack,
    StandbyActivated,
)
from clonos_py.model.errors import ClusterError, SettingError, UnmappedStateError
from clonos_py.model.ids import TaskId
from clonos_py.model.plan import PhysicalPlan
from clonos_py.observe.events import Detected, Event, KillMissed, Progress, TaskFailed, no_listener
from clonos_py.runtime.ray.cluster import Cluster
from clonos_py.runtime.ray.run import run
from clonos_py.settings.resolution import resolve
from tests.ray.counting_job import assert_exactly_once, counting
from tests.ray.places import places
from tests.waiting import WAIT_S_MAX

pytestmark = pytest.mark.ray

E = TypeVar("E", bound=Event)


def heard(folder: Path, kills: list[str], total: int, rate: float) -> list[Event]:
    """The events of a run. When all replacements have had an effect, and a checkpoint is complete, the rows that are
    left come at once."""
    events: list[Event] = []

    def hear(at_us: int, event: Event) -> None:
        events.append(event)
        if isinstance(event, CheckpointCompleted) and len(of(events, FirstNewEffect)) == len(kills):
            (folder / "unpaced").touch()

    plan = counting(str(folder), total, rate)
    run(plan, resolve(command_line={"kills": kills, "checkpoint_interval": "1s"}), hear)
    return events


def of(events: list[Event], kind: type[E]) -> list[E]:
    return [event for event in events if isinstance(event, kind)]


@pytest.mark.thorough
def test_every_task_is_killed_in_turn_and_no_row_is_lost_or_doubled(cluster: Cluster, tmp_path: Path) -> None:
    kills = ["count[0]@1.5s", "numbers[1]@3.5s", "far[1]@5.5s", "numbers[0]@7.5s", "count[1]@9.5s"]
    events = heard(tmp_path, kills, total=24_000, rate=2_000)
    failed = [event.task for event in events if isinstance(event, TaskFailed)]
    activated = [event.task for event in events if isinstance(event, StandbyActivated)]
    assert len(of(events, Detected)) == len(of(events, Replayed)) == len(kills)
    assert failed == activated
    assert of(events, RolledBack) == []
    assert len(of(events, CheckpointCompleted)) > 4
    assert isinstance(events[-1], Finished)
    assert_exactly_once(tmp_path, 24_000)


def test_a_kill_of_a_missing_task_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"--kill missing\[0\]@1s: there is no such task; there are numbers"):
        heard(tmp_path, ["missing[0]@1s"], total=1, rate=1)


def test_only_dead_standbys_and_hung_tasks_are_replaced(cluster: Cluster, tmp_path: Path) -> None:
    """A hung task is silent for the heartbeat timeout, from its last sign of life on, which was up to a heartbeat (an
    eighth) before it hung; when it wakes up it has no role any more."""
    events: list[Event] = []
    times_us: dict[type[Event], int] = {}
    hung: list[tuple[int, int]] = []

    def harm(standbys: int) -> None:
        by_role = {(place.task, place.active): place.pid for place in places("counting", standbys)}
        os.kill(by_role[TaskId("count", 0), False], signal.SIGKILL)
        audit = by_role[TaskId("audit", 1), True]
        os.kill(audit, signal.SIGSTOP)
        hung.append((audit, times_us[Progress]))

    def hear(at_us: int, event: Event) -> None:
        events.append(event)
        if not hung or isinstance(event, Detected):
            times_us[type(event)] = at_us
        if isinstance(event, Deployed):
            threading.Thread(target=harm, args=[event.standbys]).start()
        if isinstance(event, StandbyActivated):
            wake(hung[0][0])
        if isinstance(event, FirstNewEffect):
            (tmp_path / "unpaced").touch()

    given = {"checkpoint_interval": "1s", "standbys_per_process": 1}
    run(counting(str(tmp_path), 24_000, 2_000), resolve(command_line=given), hear)
    activated = [event.task for event in events if isinstance(event, StandbyActivated)]
    assert activated == [TaskId("audit", 1)]
    assert times_us[Detected] - hung[0][1] >= 1_500_000
    assert of(events, RolledBack) == []
    assert_exactly_once(tmp_path, 24_000)


def test_another_coordinator_takes_over_the_running_tasks_when_one_is_killed(cluster: Cluster, tmp_path: Path) -> None:
    """First while no recovery is under way, then together with a task. Data continues to flow: no other process is
    replaced."""
    events: list[Event] = []
    pids: list[int] = []

    def coordinator() -> Any:
        return ray.get_actor("counting", namespace="clonos")

    def harm(at_us: int, event: Event) -> None:
        events.append(event)
        replaced = len(of(events, CoordinatorReplaced))
        if isinstance(event, CheckpointCompleted) and replaced == len(pids) < 2:
            if replaced == 1:
                os.kill(
                    next(p.pid for p in places("counting") if p.task == TaskId("count", 0) and p.active), signal.SIGKILL
                )
            pids.append(ray.get(coordinator().pid.remote()))
            os.kill(pids[-1], signal.SIGKILL)
        if isinstance(event, CheckpointCompleted) and replaced == 2 and of(events, FirstNewEffect):
            (tmp_path / "unpaced").touch()

    run(counting(str(tmp_path), 24_000, 2_000), resolve(command_line={"checkpoint_interval": "1s"}), harm)
    assert len(set(pids)) == len(of(events, CoordinatorReplaced)) == 2
    activated = {event.task for event in events if isinstance(event, StandbyActivated)}
    assert activated == {TaskId("count", 0)}
    assert of(events, RolledBack) == []
    last_replaced = max(at for at, event in enumerate(events) if isinstance(event, CoordinatorReplaced))
    assert of(events[last_replaced:], CheckpointCompleted), "checkpoints continue"
    assert isinstance(events[-1], Finished)
    assert_exactly_once(tmp_path, 24_000)


@pytest.mark.thorough
def test_a_coordinator_that_stood_still_replaces_no_process(cluster: Cluster, tmp_path: Path) -> None:
    """It is stopped for longer than the heartbeat timeout. Data continues to flow, and checkpoints continue
    afterwards."""
    events: list[Event] = []
    stopped: list[int] = []
    woken_after: list[int] = []

    def wake_up() -> None:
        woken_after.append(len(of(events, CheckpointCompleted)))
        wake(stopped[0])

    def harm(at_us: int, event: Event) -> None:
        events.append(event)
        if isinstance(event, CheckpointCompleted) and not stopped:
            coordinator: Any = ray.get_actor("counting", namespace="clonos")
            stopped.append(ray.get(coordinator.pid.remote()))
            os.kill(stopped[0], signal.SIGSTOP)
            threading.Timer(5.0, wake_up).start()
        if woken_after and len(of(events, CheckpointCompleted)) >= woken_after[0] + 2:
            (tmp_path / "unpaced").touch()

    run(counting(str(tmp_path), 24_000, 2_000), resolve(command_line={"checkpoint_interval": "1s"}), harm)
    harmed = (TaskFailed, StandbyActivated, CoordinatorReplaced, RolledBack)
    assert [event for event in events if isinstance(event, harmed)] == []
    assert len(of(events, CheckpointCompleted)) >= woken_after[0] + 2
    assert isinstance(events[-1], Finished)
    assert_exactly_once(tmp_path, 24_000)


@pytest.mark.thorough
def test_two_kills_of_one_task_at_once_hit_it_and_then_its_replacement(cluster: Cluster, tmp_path: Path) -> None:
    """The second kill finds a process that is dead already, and waits for the next."""
    events = heard(tmp_path, ["count[0]@2s", "count[0]@2s"], total=16_000, rate=2_000)
    assert [event.task for event in events if isinstance(event, StandbyActivated)] == [TaskId("count", 0)] * 2
    assert [event for event in events if isinstance(event, (RolledBack, KillMissed))] == []
    assert isinstance(events[-1], Finished)
    assert_exactly_once(tmp_path, 16_000)


def test_an_address_without_a_cluster_is_reported_in_one_line() -> None:
    with pytest.raises(ClusterError, match=r"^no Ray cluster answers at 127\.0\.0\.1:1: [^\n]*$"):
        run(counting("unused"), resolve(command_line={"address": "127.0.0.1:1"}), lambda at_us, event: None)


def renamed(plan: PhysicalPlan, old: str, new: str) -> PhysicalPlan:
    """The plan with another name for one of its operators."""
    vertices = tuple(
        replace(v, operators=tuple(replace(o, name=new) if o.name == old else o for o in v.operators))
        for v in plan.vertices
    )
    return replace(plan, vertices=vertices)


@pytest.mark.thorough
def test_an_interrupted_job_resumes_from_its_last_checkpoint(cluster: Cluster, tmp_path: Path) -> None:
    plan = counting(str(tmp_path), 6_000, 200, standbys=0)
    settings = resolve(command_line={"checkpoints": str(tmp_path / "checkpoints"), "checkpoint_interval": "500ms"})

    def interrupt(at_us: int, event: Event) -> None:
        if isinstance(event, CheckpointCompleted) and event.checkpoint == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(plan, settings, interrupt)
    with pytest.raises(UnmappedStateError, match=r"'count'.*--rename count=counted"):
        run(renamed(plan, "count", "counted"), settings, interrupt)
    (tmp_path / "unpaced").touch()
    completed: list[Event] = []
    run(plan, settings, lambda at_us, event: completed.append(event))
    assert min(event.checkpoint for event in completed if isinstance(event, CheckpointCompleted)) > 2
    assert of(completed, TaskFailed) == []
    last = next(event for event in reversed(completed) if isinstance(event, Progress))
    assert 0 < last.vertices[0].rows_in <= 12_000
    assert last.vertices[1].rows_in == last.vertices[0].rows_in
    assert_exactly_once(tmp_path, 6_000)


def test_a_running_job_keeps_its_name_until_another_run_takes_it_over(cluster: Cluster, tmp_path: Path) -> None:
    """The successor resumes from the last checkpoint; its predecessor ends with an error that names the cause."""
    plan = counting(str(tmp_path), 8_000, 200, standbys=0)
    place = {"checkpoints": str(tmp_path / "checkpoints"), "checkpoint_interval": "500ms"}
    ready = threading.Event()

    def hear(at_us: int, event: Event) -> None:
        if isinstance(event, CheckpointCompleted) and event.checkpoint == 2:
            ready.set()

    with ThreadPoolExecutor(1) as first_run:
        first = first_run.submit(run, plan, resolve(command_line=place), hear)
        assert ready.wait(WAIT_S_MAX)
        with pytest.raises(ClusterError, match=r"a job named 'counting' is running on this cluster: .* --take-over"):
            run(plan, resolve(command_line={**place, "fresh": True}), no_listener)
        second: list[Event] = []

        def note(at_us: int, event: Event) -> None:
            second.append(event)
            if isinstance(event, CheckpointCompleted):
                (tmp_path / "unpaced").touch()

        run(plan, resolve(command_line={**place, "take_over": True}), note)
        with pytest.raises(ClusterError, match="another run has taken the job 'counting' over"):
            first.result(WAIT_S_MAX)
    assert min(event.checkpoint for event in second if isinstance(event, CheckpointCompleted)) > 2
    last = next(event for event in reversed(second) if isinstance(event, Progress))
    assert 0 < last.vertices[0].rows_in < 16_000, "it has not begun again"
    assert_exactly_once(tmp_path, 8_000)
