"""A task, a standby or the coordinator fails at every point at which something is under way."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace as replaced
from weakref import WeakSet

import pytest
from msgspec.structs import replace

from clonos_py.job.rounds import Rounds
from clonos_py.job.takeover import Takeover
from clonos_py.link.status import TaskStatus
from clonos_py.model.coordinator_events import CoordinatorReplaced, RolledBack, StandbyPromoted, TaskLost
from clonos_py.model.ids import Attempt
from clonos_py.runtime.world.processes import LocalProcess
from clonos_py.runtime.world.world import World
from tests.sim import points
from tests.sim.points import Harm, Point, Run, described, run
from tests.witness import WitnessJob

SEEDS = max(1, int(os.environ.get("SIMULATED_SEEDS", "0")) // 100)
SEEDS_MAX = 100

SHORT = WitnessJob(total=60)
"""Long enough for five failures and the checkpoints between them."""
POINTS = [
    points.running,
    points.aligning,
    points.snapshotting,
    points.loading,
    points.with_loading_standby,
    points.connecting,
    points.replaying,
    points.beside_recovering,
    points.finished,
    points.standing_by,
]


def harmed(point: Point, harm: Harm, seeds: range, times: int = 4, job: WitnessJob = SHORT) -> list[Run]:
    """The runs; asserts that none has problems."""
    runs = []
    for seed in seeds:
        found = run(seed, point, harm, times, job)
        assert not found.problems, described(seed, found)
        runs.append(found)
    return runs


def harm_first_then_again(then: Point, harm: Harm = points.kill) -> tuple[Point, Harm]:
    """Points that are met only during a recovery need a first failure, of any running process."""
    begun: WeakSet[World] = WeakSet()

    def point(world: World, process: LocalProcess) -> bool:
        return then(world, process) if world in begun else points.running(world, process)

    def hit(world: World, process: LocalProcess) -> None:
        if world in begun:
            harm(world, process)
        else:
            begun.add(world)
            points.kill(world, process)

    return point, hit


@pytest.mark.parametrize("point", POINTS)
def test_a_process_killed_at_this_point_is_replaced_and_the_witnesses_agree(point: Point) -> None:
    runs = harmed(*harm_first_then_again(point), range(SEEDS), times=5)
    assert sum(found.harmed - 1 for found in runs) > SEEDS // 2, "the point is hardly ever met"


def test_one_task_can_be_killed_eight_times() -> None:
    def the_task(world: World, process: LocalProcess) -> bool:
        return str(process.task) == "enrich[0]" and process.link.attempt is not None

    runs = harmed(the_task, points.kill, range(SEEDS), times=8)
    assert all(found.harmed == 8 for found in runs)


@pytest.mark.parametrize("point", POINTS)
def test_a_task_that_is_replaced_at_this_point_while_it_still_runs_does_no_harm(point: Point) -> None:
    """The zombie sends, persists, commits and answers as long as the job lasts, and all of that is ignored."""
    runs = harmed(*harm_first_then_again(point, points.forsake), range(SEEDS), times=4)
    assert sum(found.harmed - 1 for found in runs) > 0


def test_broken_connections_lose_no_row_and_replace_no_process() -> None:
    runs = harmed(points.running, points.cut_off, range(2 * SEEDS), times=6)
    assert all(found.harmed == 6 for found in runs)
    assert not any(TaskLost in found.happened for found in runs)


@pytest.mark.parametrize(
    "point",
    [
        points.running,
        points.snapshotting,
        points.connecting,
        points.replaying,
        *(
            pytest.param(point, marks=pytest.mark.thorough)
            for point in (
                points.aligning,
                points.loading,
                points.with_loading_standby,
                points.beside_recovering,
                points.finished,
                points.standing_by,
            )
        ),
    ],
)
def test_another_coordinator_takes_over_when_one_is_lost_at_this_point(point: Point) -> None:
    runs = harmed(*harm_first_then_again(point, points.lose_coordinator), range(SEEDS), times=4)
    assert sum(CoordinatorReplaced in found.happened for found in runs) > 0


@pytest.mark.parametrize("point", POINTS)
def test_the_coordinator_is_lost_together_with_a_process_at_this_point(point: Point) -> None:
    runs = harmed(*harm_first_then_again(point, points.kill_and_lose_coordinator), range(SEEDS), times=4)
    assert sum(CoordinatorReplaced in found.happened for found in runs) > 0


def test_the_coordinator_is_lost_before_any_task_runs() -> None:
    def starting(world: World, process: LocalProcess) -> bool:
        return world.actions_done < 60

    runs = harmed(starting, points.lose_coordinator, range(2 * SEEDS), times=2)
    assert all(CoordinatorReplaced in found.happened for found in runs)


def test_without_failures_a_lost_coordinator_changes_no_attempt() -> None:
    """Data continues to flow: no process is replaced, and none replays."""
    runs = harmed(points.deployed, points.lose_coordinator, range(2 * SEEDS), times=3)
    assert all(CoordinatorReplaced in found.happened for found in runs)
    assert not any(StandbyPromoted in found.happened for found in runs)


@pytest.mark.parametrize("standbys", [0, 2])
def test_a_job_recovers_with_any_number_of_standbys(standbys: int) -> None:
    """Without any, a process is started when it is needed."""
    job = replaced(SHORT, standbys=standbys)
    runs = harmed(*harm_first_then_again(points.beside_recovering), range(SEEDS), times=4, job=job)
    assert sum(found.harmed for found in runs) > SEEDS


@pytest.mark.parametrize("point", [point for point in POINTS if point is not points.replaying])
@pytest.mark.parametrize(
    "harm",
    [
        pytest.param(points.kill, marks=pytest.mark.thorough),
        points.forsake,
        pytest.param(points.lose_coordinator, marks=pytest.mark.thorough),
        points.kill_and_lose_coordinator,
    ],
)
def test_a_job_with_rollback_recovery_survives_any_failure_at_this_point(point: Point, harm: Harm) -> None:
    """Nothing is logged, so that nothing replays. A process and the coordinator that fail together cover what each of
    them does alone."""
    job = replaced(SHORT, sharing_depth=0, rollback=True)
    runs = harmed(*harm_first_then_again(point, harm), range(SEEDS), times=4, job=job)
    assert all(RolledBack in found.happened for found in runs)
    assert sum(found.harmed - 1 for found in runs) > 0


def test_a_job_survives_zombies_and_lost_coordinators_together() -> None:
    """The neighbours' reports show a new coordinator which of two processes is the task."""
    runs = harmed(*zombies_and_losses(), range(4 * SEEDS), times=6)
    assert sum(CoordinatorReplaced in found.happened for found in runs) > 2 * SEEDS


def zombies_and_losses() -> tuple[Point, Harm]:
    def hit(world: World, process: LocalProcess) -> None:
        (points.forsake if world.actions_done % 2 else points.lose_coordinator)(world, process)

    return points.running, hit


def half_way_is_all_the_way(patch: pytest.MonkeyPatch) -> None:
    """A process that was promoted counts as the task, although it has no log."""
    report = TaskStatus.report
    patch.setattr(
        TaskStatus, "report", lambda *known: replace(report(*known), begun=report(*known).attempt is not None)
    )


def whoever_says_so_is_the_task(patch: pytest.MonkeyPatch) -> None:
    """Any process that reports to be the task counts, also a zombie."""
    patch.setattr(Takeover, "_newest_attempts", lambda self: {task: Attempt(0, 0) for task in self._context.plan.tasks})


def who_died_meanwhile_is_not_missed(patch: pytest.MonkeyPatch) -> None:
    resume = Rounds.resume
    patch.setattr(
        Rounds, "resume", lambda self, number, attempts, failed, *known: resume(self, number, attempts, set(), *known)
    )


FOUND_BY: dict[Callable[[pytest.MonkeyPatch], None], int] = {whoever_says_so_is_the_task: 50}
"""The seeds that are tried before all others, where it is not the first of all."""


@pytest.mark.parametrize(
    ("bug", "harm"),
    [
        (half_way_is_all_the_way, harm_first_then_again(points.connecting, points.lose_coordinator)),
        (whoever_says_so_is_the_task, zombies_and_losses()),
        (who_died_meanwhile_is_not_missed, (points.running, points.kill_and_lose_coordinator)),
    ],
)
def test_a_planted_bug_of_the_takeover_is_found(
    bug: Callable[[pytest.MonkeyPatch], None], harm: tuple[Point, Harm], monkeypatch: pytest.MonkeyPatch
) -> None:
    bug(monkeypatch)
    for seed in (FOUND_BY.get(bug, 0), *range(SEEDS_MAX)):
        try:
            if run(seed, *harm, times=6, job=SHORT).problems:
                return
        except Exception:  # noqa: BLE001 - a machine that trips over its own invariant has found the bug
            return
    pytest.fail(f"{SEEDS_MAX} seeds did not find it")
