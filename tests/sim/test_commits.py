"""Processes die between a checkpoint and its commit, in both directions: the manifest is written and nothing is
committed yet; all is committed and the coordinator has not been notified."""

from __future__ import annotations

import pytest

from clonos_py.job.states import JobState
from clonos_py.link import instructions as io
from clonos_py.model.coordinator_events import CheckpointCompleted, RolledBack
from clonos_py.runtime.executors.storage import StorageWork
from clonos_py.runtime.world.processes import LocalProcess
from clonos_py.runtime.world.world import World
from tests.sim.courses import Course, crash
from tests.witness import WitnessJob

SEEDS = 5
KINDS = {"transactional": (), "causal": ("left", "right"), "both": ("left",)}
"""The causal sinks; one sink of each delivery meets what two of the same meet."""


class DeathAtCommits:
    """Kills the sink alone, or all processes, around some of the commits; the last one, which ends the job, is among
    them."""

    def __init__(self, before: bool, alone: bool, times: int = 4) -> None:
        self._before, self._alone, self._left = before, alone, times
        self.done = self.of_the_end = 0

    def __call__(self, course: Course, world: World, process: LocalProcess, wish: StorageWork) -> bool:
        if not isinstance(wish, io.Commit) or not course.count(CheckpointCompleted):
            return True
        if not process.alive or not self._left or course.random.random() > 0.3:
            return True
        self._left -= 1
        self.done += 1
        self.of_the_end += world.job.state is JobState.COMMITTING
        if not self._before:
            for name, named in wish.committables.items():
                process.machine.committing[name].commit_all(named)
        if self._alone:
            world.kill(process.number)
        else:
            crash(world)
        return False


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.thorough] * (kind != "both")) for kind in KINDS]
)
@pytest.mark.parametrize("alone", [True, False], ids=["the sink", "everybody"])
@pytest.mark.parametrize("before", [True, False], ids=["manifest written", "committed"])
def test_every_row_is_visible_once_although_processes_die_around_commits(before: bool, alone: bool, kind: str) -> None:
    done = of_the_end = 0
    for seed in range(SEEDS):
        deaths = DeathAtCommits(before, alone)
        course = Course(seed, WitnessJob(total=60, causal=KINDS[kind]), at_sinks=deaths)
        assert course.run() == [], f"seed {seed}"
        assert not course.count(RolledBack)
        done += deaths.done
        of_the_end += deaths.of_the_end
    assert done > 2 * SEEDS
    assert of_the_end > SEEDS // 5
