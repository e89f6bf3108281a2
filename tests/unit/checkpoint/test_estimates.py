"""The interval that a job finds itself: near the best from any start and after changes, and within its bounds."""

from __future__ import annotations

import math
import statistics
from dataclasses import replace

import pytest

from clonos_py.checkpoint.estimates import ChosenInterval, IntervalBound, IntervalEstimator, IntervalLimits
from clonos_py.checkpoint.interval import IntervalModel, LocalFailures, Rollbacks
from clonos_py.model.ids import TaskId
from tests.adaptive_intervals import TASK, AdaptiveJob, JobConditions
from tests.often import often

RUNS = 100
FAILURES = 200
LOSS_MAX = 0.02
"""Of the utilization of the best fixed interval, in the median of the runs."""
HOUR = 3_600.0
LIMITS = IntervalLimits(5, 1, 600, 1 / HOUR)

# ---- it finds the best interval


def model_of(conditions: JobConditions) -> IntervalModel:
    per_s, restart_s, speed = conditions.failures_per_s, conditions.restart_s, conditions.replay_speed
    if speed is None:
        return IntervalModel(conditions.cost_s, Rollbacks(per_s, restart_s))
    return IntervalModel(conditions.cost_s, None, LocalFailures(per_s, restart_s, speed))


def best_of(conditions: JobConditions) -> float:
    model = model_of(conditions)
    return model.utilization(model.best_s())


def estimator_for(conditions: JobConditions, times: float = 1.0) -> IntervalEstimator:
    """Its first interval, and the one that follows from the expected rate, are so many times too long."""
    first_s = model_of(conditions).best_s() * times
    expected_per_s = conditions.failures_per_s / times**2
    return IntervalEstimator(
        IntervalLimits(first_s, 1e-9, 1e9, expected_per_s), 0.0, rolls_back=conditions.replay_speed is None
    )


RATES = [pytest.param(1 / 60, marks=pytest.mark.thorough), 1 / 120, pytest.param(1 / 600, marks=pytest.mark.thorough)]


@pytest.mark.parametrize("times", [0.1, 10.0])
@pytest.mark.parametrize("failures_per_s", RATES)
@pytest.mark.parametrize("speed", often([None, 4.0], [4.0]))
def test_from_any_start_it_comes_near_the_best_fixed_interval(
    speed: float | None, failures_per_s: float, times: float
) -> None:
    conditions = JobConditions(1, failures_per_s, 2, speed)
    runs = [
        AdaptiveJob(estimator_for(conditions, times), seed).work(conditions, FAILURES / failures_per_s)
        for seed in range(RUNS)
    ]
    assert statistics.median(runs) > (1 - LOSS_MAX) * best_of(conditions)


@pytest.mark.parametrize(
    "change",
    [
        "more failures",
        pytest.param("fewer failures", marks=pytest.mark.thorough),
        "dearer",
        pytest.param("cheaper", marks=pytest.mark.thorough),
    ],
)
@pytest.mark.parametrize("failures_per_s", RATES)
@pytest.mark.parametrize("speed", [None, pytest.param(4.0, marks=pytest.mark.thorough)])
def test_it_follows_a_job_that_changes_fourfold(speed: float | None, failures_per_s: float, change: str) -> None:
    before = JobConditions(1, failures_per_s, 2, speed)
    after = {
        "more failures": replace(before, failures_per_s=4 * failures_per_s),
        "fewer failures": replace(before, failures_per_s=failures_per_s / 4),
        "dearer": replace(before, cost_s=4.0),
        "cheaper": replace(before, cost_s=0.25),
    }[change]
    found = []
    for seed in range(RUNS):
        job = AdaptiveJob(estimator_for(before), seed)
        job.work(before, 60 / before.failures_per_s)
        found.append(job.work(after, FAILURES / after.failures_per_s))
    assert statistics.median(found) > (1 - LOSS_MAX) * best_of(after)


def test_after_ten_failures_the_interval_is_near_the_best_of_the_true_rate() -> None:
    conditions = JobConditions(0.05, 1 / 20, 0.5, 5.0)
    for times in (0.1, 10.0):
        found = []
        for seed in range(RUNS):
            estimator = estimator_for(conditions, times)
            job = AdaptiveJob(estimator, seed)
            job.work(conditions, 10 / conditions.failures_per_s)
            found.append(estimator.choose(10 / conditions.failures_per_s).interval_s)
        assert statistics.median(found) == pytest.approx(model_of(conditions).best_s(), rel=0.25)


# ---- the bounds


def chosen(estimator: IntervalEstimator, now_s: float = 0.0) -> tuple[float, IntervalBound]:
    found = estimator.choose(now_s)
    return found.interval_s, found.bound


def measured(limits: IntervalLimits, cost_s: float = 0.1, rolls_back: bool = True) -> IntervalEstimator:
    estimator = IntervalEstimator(limits, 0.0, rolls_back)
    estimator.snapshot(TASK, cost_s, 0.0)
    return estimator


def test_before_a_snapshot_is_measured_the_first_interval_stays() -> None:
    assert chosen(IntervalEstimator(LIMITS, 0.0, rolls_back=True)) == (5, IntervalBound.UNMEASURED)


def test_with_no_failures_yet_the_expected_rate_counts() -> None:
    found = measured(LIMITS).choose(0.0)
    assert (found.interval_s, found.bound) == (found.best_s, IntervalBound.NONE)
    assert found.interval_s == pytest.approx(IntervalModel(0.1, Rollbacks(1 / HOUR)).best_s())


def test_a_job_that_never_fails_reaches_the_longest_interval_and_no_longer() -> None:
    assert chosen(measured(LIMITS, cost_s=1), 1e6) == (600, IntervalBound.LONGEST)


def test_a_free_checkpoint_is_taken_as_often_as_allowed() -> None:
    assert chosen(measured(LIMITS, cost_s=0)) == (1, IntervalBound.SHORTEST)


def test_the_interval_is_not_shorter_than_a_checkpoint_takes() -> None:
    estimator = measured(LIMITS, cost_s=1e-6)
    estimator.completed(4)
    assert chosen(estimator) == (4, IntervalBound.DURATION)
    estimator.completed(1e9)
    assert chosen(estimator) == (600, IntervalBound.DURATION)


def test_retained_frames_fill_half_of_the_budget_at_most() -> None:
    estimator = measured(replace(LIMITS, budget_bytes=1_000), cost_s=1)
    estimator.completed(0.5)
    estimator.retained(100, within_s=5)
    interval_s, bound = chosen(estimator)
    assert bound is IntervalBound.BUDGET
    assert (interval_s + 0.5) * 100 / 5 == pytest.approx(500)


def test_frames_that_are_written_to_disk_bound_nothing() -> None:
    estimator = measured(LIMITS, cost_s=1)
    estimator.retained(1e15, within_s=1)
    assert estimator.choose(0.0).bound is IntervalBound.NONE


# ---- the estimates


def test_the_task_with_most_to_do_limits_the_job() -> None:
    estimator = IntervalEstimator(LIMITS, 0.0, rolls_back=True)
    estimator.snapshot(TaskId("idle", 0), 0.5, busy_s=0)
    estimator.snapshot(TaskId("busy", 0), 0.1, busy_s=4)
    assert estimator.cost_s == 0.1


def test_what_is_kept_goes_on_in_another_estimator() -> None:
    one = measured(LIMITS, rolls_back=False)
    one.snapshot(TaskId("idle", 0), 5.0, 0.0)
    one.snapshot(TASK, 0.5, 20.0)
    one.completed(0.5)
    one.retained(1_000, within_s=10)
    for at_s in (50, 90, 100):
        one.failed(at_s)
        one.replayed(0.5, work_s=20, replay_s=4)
    one.rolled_back()
    one.restarted(3, 2)
    other = IntervalEstimator(LIMITS, 1_000.0, rolls_back=False, kept=one.kept(120.0))
    assert_same(other.choose(1_000.0), one.choose(120.0))
    for estimator, offset_s in ((one, 0.0), (other, 880.0)):
        estimator.failed(130 + offset_s)
        estimator.snapshot(TASK, 0.2, 20.0)
    assert_same(other.choose(1_100.0), one.choose(220.0))


def assert_same(one: ChosenInterval, other: ChosenInterval) -> None:
    """But for rounding, as their clocks differ."""
    assert one.bound is other.bound
    found, expected = ([v for v in vars(each).values() if isinstance(v, float)] for each in (one, other))
    assert len(found) == 7
    assert found == pytest.approx(expected, rel=1e-9)


def test_the_cost_forgets() -> None:
    estimator = measured(LIMITS, cost_s=1)
    for _ in range(20):
        estimator.snapshot(TASK, 4, 0)
    assert estimator.cost_s == pytest.approx(4, rel=0.02)


def test_faster_replays_make_the_interval_longer() -> None:
    estimator = measured(LIMITS, rolls_back=False)
    estimator.failed(100)
    slow_s = estimator.choose(100).interval_s
    estimator.replayed(restart_s=0.5, work_s=10, replay_s=1)
    assert estimator.replay_speed == 10
    assert estimator.choose(100).interval_s == pytest.approx(slow_s * math.sqrt(10), rel=0.02)


def test_a_replay_that_takes_no_time_is_only_fast() -> None:
    estimator = measured(LIMITS, rolls_back=False)
    estimator.replayed(0.5, work_s=10, replay_s=0)
    assert estimator.replay_speed == pytest.approx(1_000)
    estimator = measured(LIMITS, rolls_back=False)
    estimator.replayed(0.5, work_s=0, replay_s=0)
    assert estimator.replay_speed == 0.1


def test_rollbacks_among_local_failures_make_the_interval_shorter() -> None:
    local, both = measured(LIMITS, rolls_back=False), measured(LIMITS, rolls_back=False)
    for estimator in (local, both):
        estimator.replayed(0.5, work_s=100, replay_s=1)
        for at_s in (100, 200, 300):
            estimator.failed(at_s)
    both.rolled_back()
    assert both.choose(300).interval_s < local.choose(300).interval_s / 3


def test_with_fed_standbys_only_rollbacks_limit_the_interval() -> None:
    estimator = IntervalEstimator(LIMITS, 0.0, rolls_back=False, feed_lag_s=0.1)
    estimator.snapshot(TASK, 0.1, 0)
    estimator.failed(10)
    assert chosen(estimator, 10) == (600, IntervalBound.LONGEST)
    estimator.failed(20)
    estimator.rolled_back()
    assert estimator.choose(20).interval_s < 600


def test_utilization_so_far_counts_checkpoints_restarts_and_work_done_again() -> None:
    estimator = measured(LIMITS, cost_s=1)
    estimator.failed(50)
    estimator.restarted(restart_s=3, again_s=16)
    assert estimator.choose(100).utilization == pytest.approx(0.8)
    local = measured(LIMITS, cost_s=1, rolls_back=False)
    local.failed(50)
    local.replayed(restart_s=3, work_s=16, replay_s=4)
    assert local.choose(100).utilization == pytest.approx(0.92)
