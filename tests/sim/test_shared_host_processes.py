"""Standbys share a process of the operating system, and die with it, in simulated runs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, islice
from weakref import WeakKeyDictionary

import pytest

from clonos_py.job.context import CoordinatorContext
from clonos_py.job.events import KillProcess
from clonos_py.job.fleet import TaskProcess
from clonos_py.model.coordinator_events import CoordinatorReplaced, StandbyLost, TaskLost
from clonos_py.model.ids import TaskId
from clonos_py.model.protocols import ProtocolProperties
from clonos_py.runtime.sim.scenario import run_scenario
from clonos_py.runtime.world.processes import LocalProcess
from clonos_py.runtime.world.world import World
from clonos_py.settings.protocols import ALIGNED, UNCOORDINATED
from tests.sim import points
from tests.sim.points import Harm, Point, Run, described, run
from tests.sim.small_first import small_first
from tests.sim.test_failure_points import harm_first_then_again
from tests.witness import WitnessJob

SEEDS = max(2, int(os.environ.get("SIMULATED_SEEDS", "0")) // 100)
STANDBYS_PER_PROCESS = 3
SHORT = WitnessJob(total=60)
"""Long enough for five failures."""


def harmed(point: Point, harm: Harm, times: int, job: WitnessJob = SHORT) -> list[Run]:
    """The runs; asserts that none has problems."""
    runs = []
    for seed in range(SEEDS):
        found = run(seed, point, harm, times, job, STANDBYS_PER_PROCESS)
        assert not found.problems, described(seed, found)
        runs.append(found)
    return runs


def sharing_a_host(world: World, process: LocalProcess) -> bool:
    return points.standing_by(world, process) and len(world.coordination.in_host_process_of(process.number)) > 1


def calm(world: World, process: LocalProcess) -> bool:
    """All tasks run, and all standbys stand by."""
    standing_by = sum(points.standing_by(world, other) for other in world.processes.values())
    return points.running(world, process) and points.deployed(world, process) and standing_by >= len(world.plan.tasks)


@pytest.mark.parametrize(
    "point",
    [points.running, points.connecting, points.replaying, points.beside_recovering, points.loading, sharing_a_host],
)
@pytest.mark.parametrize("standbys", [1, 2])
def test_a_process_killed_here_ends_its_host_process_and_the_witnesses_agree(point: Point, standbys: int) -> None:
    runs = harmed(*harm_first_then_again(point), times=5, job=replace(SHORT, standbys=standbys))
    assert sum(found.harmed - 1 for found in runs) > 0
    assert sum(StandbyLost in found.happened for found in runs) > 0


def test_the_coordinator_is_lost_together_with_a_host_process() -> None:
    runs = harmed(*harm_first_then_again(sharing_a_host, points.kill_and_lose_coordinator), times=4)
    assert sum(CoordinatorReplaced in found.happened for found in runs) > 0


def test_a_new_coordinator_finds_standbys_in_the_host_processes_of_tasks() -> None:
    runs = harmed(*harm_first_then_again(points.connecting, points.lose_coordinator), times=6)
    assert sum(CoordinatorReplaced in found.happened for found in runs) > 0


def test_no_task_dies_because_standbys_leave_its_host_process() -> None:
    runs = harmed(calm, points.kill, times=3, job=WitnessJob(total=400))
    assert sum(found.harmed for found in runs) > SEEDS
    for found in runs:
        assert found.happened.count(TaskLost) == found.harmed
        assert StandbyLost in found.happened or not found.harmed


class Together:
    """Kills two tasks at once whose standbys share a host process, and watches whether two tasks share one."""

    def __init__(self) -> None:
        self.watched: WeakKeyDictionary[World, list[bool]] = WeakKeyDictionary()

    def point(self, world: World, process: LocalProcess) -> bool:
        if process.number != min(world.processes):
            return False  # once per moment is enough
        if world in self.watched:
            self.watched[world].append(len(_hosts_of_tasks(world)) < len(world.plan.tasks))
            return False
        return calm(world, process) and any(self._pairs(world))

    def kill(self, world: World, process: LocalProcess) -> None:
        self.watched[world] = []
        for task in next(self._pairs(world)):
            for other in [*world.processes.values()]:
                if other.task == task and not points.standing_by(world, other):
                    world.kill(other.number)

    def _pairs(self, world: World) -> Iterator[tuple[TaskId, TaskId]]:
        standbys = [other for other in world.processes.values() if points.standing_by(world, other)]
        for one, other in combinations(standbys, 2):
            if one.task != other.task and _host(world, one) == _host(world, other):
                yield one.task, other.task


def _host(world: World, process: LocalProcess) -> int:
    return world.coordination.host_process(process.number)


def _hosts_of_tasks(world: World) -> set[int]:
    """Failed tasks count as if each had a host process."""
    owners = [other for other in world.processes.values() if not points.standing_by(world, other)]
    lacking = set(world.plan.tasks).difference(owner.task for owner in owners)
    return {_host(world, owner) for owner in owners} | {-number for number in range(1, 1 + len(lacking))}


@pytest.mark.parametrize("protocol", [ALIGNED, UNCOORDINATED], ids=str)
def test_tasks_that_were_promoted_into_one_host_process_move_apart(protocol: ProtocolProperties) -> None:
    watch = Together()
    runs = harmed(watch.point, watch.kill, times=2, job=WitnessJob(total=900, protocol=protocol))
    moved = sum(any("its process has another task" in line for line in found.story) for found in runs)
    assert moved > 0
    assert any(True in seen and not any(seen[len(seen) * 3 // 4 :]) for seen in watch.watched.values())
    for found in runs:
        assert found.happened.count(TaskLost) <= 3 * found.harmed, "two are killed, and one of them moves"


def test_the_simulator_finds_a_dismissal_that_kills_the_whole_host_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: a standby that leaves kills its whole host process."""

    def end(self: CoordinatorContext, process: TaskProcess) -> KillProcess:
        self.fleet.remove(process.number)
        return KillProcess(process.number)

    monkeypatch.setattr(CoordinatorContext, "dismiss", end)
    found = run(0, calm, points.kill, 3, WitnessJob(total=400), standbys_per_process=STANDBYS_PER_PROCESS)
    assert found.problems or found.happened.count(TaskLost) > found.harmed


def test_generated_jobs_have_shared_host_processes_and_lose_them() -> None:
    """Otherwise, the jobs of seeds do not depend on shared host processes."""
    shared = [s for s in small_first(range(60)) if s.conditions.standbys_per_process > 1]
    assert 15 < len(shared) < 45
    lost = (None for scenario in shared if "become another task's" in " ".join(run_scenario(scenario).story))
    assert len(list(islice(lost, 6))) == 6
