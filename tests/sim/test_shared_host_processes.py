"""Standbys share a process of the operating system, and die with it, in simulated runs."""

from __future__ import annotations

import os

import pytest

from clonos_py.job.context import CoordinatorContext
from clonos_py.job.fleet import TaskProcess
from clonos_py.model.coordinator_events import CoordinatorReplaced, StandbyLost, TaskLost
from clonos_py.runtime.sim.generator import generate
from clonos_py.runtime.sim.scenario import run_seed
from clonos_py.runtime.sim.witness import WitnessJob
from clonos_py.runtime.world.processes import LocalProcess
from clonos_py.runtime.world.world import World
from tests.sim import points
from tests.sim.points import Harm, Point, Run, run
from tests.sim.test_failure_points import harm_first_then_again, told

SEEDS = max(3, int(os.environ.get("SIMULATED_SEEDS", "0")) // 100)
STANDBYS_PER_PROCESS = 3


def harmed(point: Point, harm: Harm, times: int, job: WitnessJob = WitnessJob()) -> list[Run]:  # noqa: B008 - frozen
    """The runs; asserts that none has problems."""
    runs = []
    for seed in range(SEEDS):
        found = run(seed, point, harm, times, job, STANDBYS_PER_PROCESS)
        assert not found.problems, told(seed, found)
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
    runs = harmed(*harm_first_then_again(point), times=5, job=WitnessJob(standbys=standbys))
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


def test_the_simulator_finds_a_dismissal_that_kills_the_whole_host_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: a standby that leaves kills its whole host process."""

    def end(self: CoordinatorContext, process: TaskProcess) -> None:
        self.fleet.remove(process.number)
        self.kill_process(process.number)

    monkeypatch.setattr(CoordinatorContext, "dismiss", end)
    found = run(0, calm, points.kill, 3, WitnessJob(total=400), standbys_per_process=STANDBYS_PER_PROCESS)
    assert found.problems or found.happened.count(TaskLost) > found.harmed


def test_generated_jobs_have_shared_host_processes_and_lose_them() -> None:
    """Otherwise, the jobs of seeds do not depend on shared host processes."""
    seeds = [seed for seed in range(60) if generate(seed).conditions.standbys_per_process > 1]
    assert 15 < len(seeds) < 45
    stories = [" ".join(run_seed(seed).story) for seed in seeds]
    assert sum("become another task's" in story for story in stories) > 5
