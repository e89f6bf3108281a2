"""Every leaf of Figure 4 of the Clonos paper: sharing depth full or less, determinants in a survivor or not, survivors
that depend on them or not. Each is a set of tasks of the witness job that die together in full flow.

    numbers -> enrich -> left
                     \\-> rank
"""

from __future__ import annotations

import pytest

from clonos_py.job.events import JobPolicy
from clonos_py.link.held_logs import HeldLogs
from clonos_py.model.coordinator_events import Deployed, RestartedWithoutLog, RolledBack
from clonos_py.model.ids import TaskId
from tests.sim.worlds import INTERVAL_US, E, KillBehind, KillTogether, L, N, R, Run, run
from tests.witness import WitnessJob, disagreements

AVAILABLE = JobPolicy(checkpoint_interval_us=INTERVAL_US, availability=True)
SEEDS = range(2)
TOTAL = 120


def kill(seed: int, depth: int, *tasks: TaskId, policy: JobPolicy | None = None) -> Run:
    """A chain of parallelism 1, so that a set of vertices names the failed tasks."""
    made = run(seed, WitnessJob(TOTAL, parallelism=1, sharing_depth=depth), KillTogether(tasks, times=2), policy)
    assert made.kills >= len(tasks), "nothing was killed"
    assert made.ended is not None
    assert made.ended.error is None, made.ended.message
    return made


def healed(made: Run) -> bool:
    """Whether there was no rollback and the outputs are right."""
    assert not disagreements(made.ledger, TOTAL)
    assert not made.of(RestartedWithoutLog)
    return not made.of(RolledBack)


@pytest.mark.parametrize("tasks", [(N,), (E,), (N, E), (N, L), (E, L), (N, E, R)])
def test_full_depth_replacements_replay_the_determinants_that_a_survivor_holds(tasks: tuple[TaskId, ...]) -> None:
    assert all(healed(kill(seed, -1, *tasks)) for seed in SEEDS)


@pytest.mark.parametrize("tasks", [(L,), (R,), (L, R), (E, L, R)])
def test_full_depth_any_execution_is_right_when_no_survivor_depends_on_the_failed_tasks(
    tasks: tuple[TaskId, ...],
) -> None:
    """No task ever depends on the sinks; only they depended on enrich."""
    assert all(healed(kill(seed, -1, *tasks)) for seed in SEEDS)


@pytest.mark.parametrize("depth", [-1, 1])
def test_the_job_resumes_from_its_checkpoint_when_all_tasks_have_failed(depth: int) -> None:
    for seed in SEEDS:
        made = kill(seed, depth, N, E, L, R)
        assert healed(made)
        assert len(made.of(Deployed)) == 1


@pytest.mark.parametrize("tasks", [(N,), (E,), (N, L), (E, L), (N, L, R)])
def test_lower_depth_replacements_replay_the_determinants_that_a_survivor_within_it_holds(
    tasks: tuple[TaskId, ...],
) -> None:
    assert all(healed(kill(seed, 1, *tasks)) for seed in SEEDS)


@pytest.mark.parametrize("tasks", [(L, R), (E, L, R), (N, E, L, R)])
def test_lower_depth_any_execution_is_right_when_all_holders_and_dependants_have_failed(
    tasks: tuple[TaskId, ...],
) -> None:
    assert all(healed(kill(seed, 1, *tasks)) for seed in SEEDS)


@pytest.mark.parametrize("tasks", [(N, E), (N, E, L)])
def test_lower_depth_the_job_rolls_back_when_holders_have_failed_but_not_all_dependants(
    tasks: tuple[TaskId, ...],
) -> None:
    for seed in SEEDS:
        made = kill(seed, 1, *tasks)
        assert not healed(made), "a job prefers consistency by default"
        assert "depends on numbers[0]" in made.of(RolledBack)[0].reason


@pytest.mark.parametrize("tasks", [(N, E), (N, E, L)])
def test_lower_depth_a_job_that_prefers_availability_goes_on_at_least_once_instead(
    tasks: tuple[TaskId, ...],
) -> None:
    twice = 0
    for seed in SEEDS:
        made = kill(seed, 1, *tasks, policy=AVAILABLE)
        assert not made.of(RolledBack)
        assert made.of(RestartedWithoutLog)
        for witness in ("left", "right"):
            assert set(made.ids(witness)) == set(range(TOTAL)), "nothing is lost"
        twice += len(made.ids("right")) - TOTAL
    assert twice > 0, "nothing ever came twice: there was no lapse to survive"


def test_depth_0_no_determinant_is_kept_and_the_job_is_at_least_once() -> None:
    policy = JobPolicy(checkpoint_interval_us=INTERVAL_US, deduplicate=False)
    for seed in SEEDS:
        made = kill(seed, 0, N, E, policy=policy)
        assert not made.of(RolledBack)
        assert set(made.ids("left")) == set(made.ids("right")) == set(range(TOTAL))


def behind(seed: int) -> Run:
    """numbers fails before the replacement of enrich, the only holder of its determinants, has received anything from
    it."""
    made = run(seed, WitnessJob(TOTAL, parallelism=1, sharing_depth=1), KillBehind(E, N))
    assert made.kills == 2
    assert not disagreements(made.ledger, TOTAL)
    return made


def test_lower_depth_a_holder_that_has_not_caught_up_does_not_count() -> None:
    assert all(behind(seed).of(RolledBack) for seed in SEEDS)


def found_out(seed: int) -> bool:
    try:
        rollbacks = behind(seed).of(RolledBack)
    except AssertionError:
        return True
    return any("depends on" not in rollback.reason for rollback in rollbacks)


def test_a_holder_that_claims_to_have_caught_up_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HeldLogs, "become", lambda self, attempt: None)
    assert any(found_out(seed) for seed in range(200))
