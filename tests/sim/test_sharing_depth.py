"""Two witnesses at sharing depths below full: outputs are right, and only orphans are rolled back."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection

import pytest

from clonos_py.job import restarts_without_log
from clonos_py.job.events import JobPolicy
from clonos_py.job.orphans import Survivors, orphans
from clonos_py.link.held_logs import HeldLogs
from clonos_py.model.coordinator_events import RolledBack
from clonos_py.model.ids import TaskId
from clonos_py.model.plan import PhysicalPlan
from clonos_py.runtime.sim.run import simulate_plan
from tests.sim.worlds import KillOneAtATime, run
from tests.unit.job.graphs import orphans_by_definition
from tests.witness import WitnessJob, WitnessLedger, disagreements

SEEDS = int(os.environ.get("SIMULATED_SEEDS", "160")) // 32
SEEDS_MAX = 100
POLICY = JobPolicy(checkpoint_interval_us=25_000, rollbacks_max=1_000)


class Judge:
    """Compares every verdict of a recovery round with the definitions, and counts those that call for a rollback."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.verdicts = self.rollbacks = 0
        patch.setattr(restarts_without_log, "orphans", self)

    def __call__(self, plan: PhysicalPlan, failed: Collection[TaskId], survivors: Survivors) -> dict[TaskId, TaskId]:
        found = orphans(plan, failed, survivors)
        expected = orphans_by_definition(plan, failed, survivors)
        assert set(found) == expected
        self.verdicts += 1
        self.rollbacks += bool(found)
        return found


@pytest.mark.parametrize("depth", [1, 2])
def test_outputs_are_right_and_rollbacks_are_those_that_the_definitions_require(
    depth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rolled_back = 0
    for seed in range(SEEDS):
        judge, ledger = Judge(monkeypatch), WitnessLedger()
        job = WitnessJob(sharing_depth=depth)
        outcome = simulate_plan(job.plan(ledger), seed, kills=6, policy=POLICY)
        problems = [problem for problem in outcome.problems if not problem.endswith(" rollbacks")]
        assert not problems, (seed, problems, outcome.story)
        assert not disagreements(ledger, job.total), (seed, outcome.story)
        assert outcome.rollbacks == judge.rollbacks, (seed, outcome.story)
        rolled_back += outcome.rollbacks
        monkeypatch.undo()
    assert (rolled_back > SEEDS // 20) == (depth == 1), "full is 2 in this graph, and needs no rollback"


def test_single_failures_at_depth_1_cause_no_rollback() -> None:
    kills = 0
    for seed in range(SEEDS):
        made = run(seed, WitnessJob(sharing_depth=1, parallelism=1 + seed % 3), KillOneAtATime(seed, 6))
        assert not made.of(RolledBack), seed
        assert not disagreements(made.ledger, 200), seed
        assert made.ended is not None
        assert made.ended.error is None, seed
        kills += made.kills
    assert kills > 2 * SEEDS


def _no_orphans(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(restarts_without_log, "orphans", lambda plan, failed, survivors: {})


def _nothing_received(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(HeldLogs, "_has_received", lambda self, channel: False)
    patch.setattr(HeldLogs, "_held_from", lambda self, index: set())


@pytest.mark.parametrize("plant", [_no_orphans, _nothing_received], ids=["no orphans", "nothing received"])
def test_the_simulator_notices(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each planted bug leaves an orphan: its replay differs from the frames sent before, or the witnesses disagree."""
    plant(monkeypatch)
    for seed in range(SEEDS_MAX):
        ledger = WitnessLedger()
        outcome = simulate_plan(WitnessJob(sharing_depth=1).plan(ledger), seed, kills=6, policy=POLICY)
        wrong = [problem for problem in outcome.problems if not problem.endswith(" rollbacks")]
        diverged = any("rolled back" in line and "depends on" not in line for line in outcome.story)
        if wrong or diverged or disagreements(ledger, 200):
            return
    pytest.fail(f"{SEEDS_MAX} seeds did not find it")
