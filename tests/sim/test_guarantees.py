"""The three guarantees of section 5.4 of the Clonos paper, as settings, under failures at any moment."""

from __future__ import annotations

from collections import Counter

import pytest

from clonos_py.job.events import EndJob
from clonos_py.model.coordinator_events import CoordinatorEvent, RestartedWithoutLog, RolledBack
from clonos_py.model.ids import TaskId
from clonos_py.runtime.run_settings import policy
from clonos_py.runtime.sim.run import simulate_plan
from clonos_py.settings.definitions import Settings
from clonos_py.settings.resolution import resolve
from tests.sim.worlds import E, KillTogether, L, N, R, Run, run
from tests.witness import WitnessJob, WitnessLedger, disagreements

SEEDS = range(6)
TOTAL, LONG = 120, 200
"""Rows of a job. In short ones no row comes twice after a restart without log."""


def witnessed(
    seed: int, settings: Settings, total: int = TOTAL
) -> tuple[WitnessLedger, list[type[CoordinatorEvent]], int]:
    """What the sinks committed, the events, and the number of kills."""
    ledger, reported = WitnessLedger(), list[type[CoordinatorEvent]]()
    gaps = settings.guarantee.value == "at-most-once"
    plan = WitnessJob(total, sharing_depth=settings.sharing_depth, gaps=gaps).plan(ledger)
    outcome = simulate_plan(
        plan, seed, kills=4, policy=policy(settings), listener=lambda _, event: reported.append(type(event))
    )
    problems = [problem for problem in outcome.problems if not problem.endswith(" rollbacks")]
    assert not problems, (seed, problems, outcome.story)
    return ledger, reported, outcome.kills


def settings(**given: object) -> Settings:
    return resolve({"checkpoint_interval": "25ms", **given})


def test_exactly_once_every_record_takes_effect_once() -> None:
    for seed in SEEDS[:4]:
        ledger, reported, _ = witnessed(seed, settings(guarantee="exactly-once"))
        assert not disagreements(ledger, TOTAL), seed
        assert RolledBack not in reported


VICTIMS = ([N], [E], [L], [R], [N, E], [E, R], [N, E, L, R])
SOME = ([N], [R], [E, R])
any_victims = pytest.mark.parametrize(
    "victims", [pytest.param(tasks, marks=[pytest.mark.thorough] * (tasks not in SOME)) for tasks in VICTIMS]
)


def seen(made: Run, witness: str) -> Counter[int]:
    """How often each record took effect."""
    return Counter(made.ids(witness))


@any_victims
@pytest.mark.parametrize("given", [{"sharing_depth": 0}, {"guarantee": "at-least-once", "sharing_depth": "full"}])
def test_at_least_once_no_record_is_lost_and_some_are_processed_twice(
    given: dict[str, object], victims: list[TaskId]
) -> None:
    chosen, twice = settings(**given), 0
    for seed in range(2):
        job = WitnessJob(TOTAL, sharing_depth=chosen.sharing_depth)
        made = run(seed, job, KillTogether(victims, times=2), policy(chosen))
        assert made.kills
        assert not made.of(RolledBack), "nothing is ever rolled back below exactly-once"
        for name in ("left", "right"):
            assert set(seen(made, name)) == set(range(TOTAL)), (seed, name)
            twice += len(made.ids(name)) - TOTAL
    assert (twice > 0) == (victims not in ([L], [R])), "rows that sinks had not committed count once"


@any_victims
def test_with_rollback_recovery_every_record_takes_effect_once_and_nothing_is_logged(victims: list[TaskId]) -> None:
    chosen = settings(guarantee="exactly-once", sharing_depth=0)
    for seed in range(2):
        job = WitnessJob(TOTAL, sharing_depth=chosen.sharing_depth, rollback=chosen.rollback)
        made = run(seed, job, KillTogether(victims, times=2), policy(chosen))
        assert made.kills == 2 * len(victims)
        assert made.ended == EndJob()
        assert len(made.of(RolledBack)) >= 2
        assert not disagreements(made.ledger, TOTAL), seed


def test_availability_beyond_the_sharing_depth_loses_no_record_and_restarts_are_reported() -> None:
    lapses = twice = 0
    for seed in SEEDS:
        ledger, reported, _ = witnessed(seed, settings(sharing_depth=1, beyond_sharing_depth="availability"), LONG)
        assert RolledBack not in reported, seed
        lapses += reported.count(RestartedWithoutLog)
        doubled = 0
        for name in ("left", "right"):
            ids = [row["id"] for row in ledger.rows(name)]
            assert set(ids) == set(range(LONG)), (seed, name)
            doubled += len(ids) - LONG
        assert RestartedWithoutLog in reported or not doubled, (seed, "rows came twice without a report")
        twice += doubled
    assert lapses > 0
    assert twice > 0
