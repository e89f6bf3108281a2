"""How often tasks may fail and a job may roll back, and which checkpoints let it begin to count again."""

from __future__ import annotations

from clonos_py.job.events import JobPolicy
from clonos_py.job.failure_limits import FailureLimits
from tests.unit.job.graphs import task

A, B = task("a"), task("b")


def limits() -> FailureLimits:
    return FailureLimits(JobPolicy(recoveries_max=2, rollbacks_max=1), [A, B])


def test_each_task_may_fail_as_often_as_the_policy_says() -> None:
    ours = limits()
    assert [ours.failed(A) for _ in range(3)] == [True, True, False]
    assert ours.failed(B)


def test_a_new_snapshot_of_a_task_resets_its_failures_and_no_others() -> None:
    ours = limits()
    for one in (A, B):
        assert [ours.failed(one) for _ in range(2)] == [True, True]
    ours.progress([A])
    assert ours.failed(A)
    assert not ours.failed(B)


def test_a_checkpoint_of_all_tasks_resets_everything() -> None:
    ours = limits()
    assert [ours.failed(A) for _ in range(2)] == [True, True]
    assert ours.rolls_back(counted=True)
    ours.progress(None)
    assert ours.failed(A)
    assert ours.rolls_back(counted=True)


def test_deaths_are_reported_after_five_then_after_twice_as_many_each_time() -> None:
    ours = limits()
    assert [died for _ in range(85) if (died := ours.died(A)) is not None] == [5, 10, 20, 40, 80]
    assert ours.died(B) is None
    ours.progress([A])
    assert [ours.died(A) for _ in range(5)] == [None, None, None, None, 5]


def test_rollbacks_count_until_all_tasks_have_new_snapshots() -> None:
    ours = limits()
    assert ours.rolls_back(counted=True)
    ours.progress([A])
    assert not ours.rolls_back(counted=True)
    ours.progress([A])
    ours.progress([B])
    assert ours.rolls_back(counted=True)


def test_a_rollback_that_is_the_usual_recovery_does_not_count() -> None:
    ours = limits()
    assert [ours.rolls_back(counted=False) for _ in range(3)] == [True, True, True]
