"""What is counted as lost in a run, and that the model foretells it from the same failures."""

from __future__ import annotations

import numpy as np
import pytest

from clonos_py.checkpoint.interval import IntervalModel, LocalFailures, Rollbacks
from clonos_py.evaluation.intervals.accounting import AccountedRun, accounted, foretold
from clonos_py.model.coordinator_events import (
    CheckpointCompleted,
    Deployed,
    Replayed,
    Restarted,
    StandbyActivated,
)
from clonos_py.model.counters import ProcessCounters
from clonos_py.model.ids import Attempt, TaskId
from clonos_py.observe.events import Event, Measured, ProcessReading, TaskFailed

COUNT, OTHER = TaskId("count", 0), TaskId("other", 0)
DEPLOYED_S = 7.0
FIRST = Attempt(1, 1)


def at(seconds: float, event: Event) -> tuple[int, Event]:
    return round((DEPLOYED_S + seconds) * 1e6), event


def checkpoint(number: int, done_s: float, cost_s: float = 0.1) -> list[tuple[int, Event]]:
    """It takes half a second."""
    return [at(done_s, CheckpointCompleted(number, 500.0, 1, cost_ms=cost_s * 1e3))]


def failed(seconds: float, task: TaskId = COUNT, planned: bool = False) -> tuple[int, Event]:
    return at(seconds, TaskFailed(task=task, how="killed", planned=planned))


def rows(process: int, *counts: tuple[float, int]) -> list[tuple[int, Event]]:
    return [
        at(seconds, Measured((ProcessReading(at(seconds, OVER)[0], COUNT, process, counters(count)),)))
        for seconds, count in counts
    ]


OVER = Restarted(tasks=2)


def counters(count: int) -> ProcessCounters:
    return ProcessCounters(active=True, counts={"counted.rows_out": count, "other.rows_out": 1})


def account(events: list[tuple[int, Event]], until_s: float, rolls_back: bool = False) -> AccountedRun:
    timed = sorted([at(0, Deployed(2, 2)), *events], key=lambda each: each[0])
    return accounted(timed, COUNT, "counted.rows_out", at(until_s, OVER)[0], rolls_back)


def test_a_local_failure_costs_the_time_until_the_replay_is_over() -> None:
    found = account(
        [
            *checkpoint(1, 5.5),
            failed(9),
            at(9.5, StandbyActivated(COUNT, FIRST)),
            at(9.6, StandbyActivated(OTHER, FIRST)),
            at(11.5, Replayed(COUNT, 100)),
            *checkpoint(2, 15.5, cost_s=0.3),
        ],
        20,
    )
    assert (found.outage_s, found.again_s, found.snapshots_s) == pytest.approx((0.5, 2.0, 0.4))
    assert found.utilization == pytest.approx(1 - 2.9 / 20)
    assert (found.failures_s, found.checkpoints) == ([9], 2)
    assert (found.cost_s, found.restart_s, found.lag_s) == pytest.approx((0.2, 0.5, 0.5))
    assert found.replay_speed == pytest.approx(4 / 2), "the checkpoint before was triggered 4 s before the failure"


def test_a_failure_during_a_replay_is_part_of_the_same_time() -> None:
    found = account(
        [
            failed(4),
            at(5, StandbyActivated(COUNT, FIRST)),
            failed(6),
            at(7, StandbyActivated(COUNT, FIRST)),
            at(9, Replayed(COUNT, 100)),
        ],
        10,
    )
    assert found.outage_s + found.again_s == pytest.approx(5)
    assert found.failures_s == [4, 6]
    assert (found.restart_s, found.replay_speed) == pytest.approx((1, 4 / 2)), "the first replay was cut off"


def test_a_failure_that_is_not_over_lasts_to_the_end() -> None:
    found = account([failed(8)], 10)
    assert (found.outage_s, found.again_s, found.restart_s) == pytest.approx((2, 0, 0))


def test_other_tasks_and_tasks_that_move_do_not_count() -> None:
    assert account([failed(1, OTHER), failed(2, planned=True)], 10).utilization == 1


def test_a_rollback_costs_the_time_until_the_task_has_as_many_rows_as_before() -> None:
    """What the failed process has reported may arrive after the failure."""
    found = account(
        [
            *rows(1, (1, 1_000), (2, 2_000), (3, 3_000), (4, 4_000)),
            failed(4.5),
            *rows(1, (4.6, 4_600)),
            at(6, OVER),
            *rows(2, (6.5, 2_500), (7, 3_000), (8, 4_000), (9, 5_000)),
        ],
        10,
        rolls_back=True,
    )
    assert found.outage_s == pytest.approx(1.5)
    assert found.again_s == pytest.approx(8.5 - 6)
    assert found.replay_speed is None


def test_a_rollback_before_the_last_is_made_up_for_goes_on() -> None:
    found = account(
        [
            *rows(1, (1, 1_000), (2, 2_000), (4, 4_000)),
            failed(4),
            at(5, OVER),
            *rows(2, (5.5, 500), (6, 1_000)),
            failed(6),
            at(7, OVER),
            *rows(3, (7.5, 500), (8, 1_000), (11, 4_000), (12, 5_000)),
        ],
        20,
        rolls_back=True,
    )
    assert found.outage_s + found.again_s == pytest.approx(11 - 4)


def test_a_run_without_a_failure_is_only_slowed_by_checkpoints() -> None:
    found = account(checkpoint(1, 5), 10)
    assert found.utilization == pytest.approx(0.99)
    assert (found.restart_s, found.replay_speed) == (0, None)


def test_the_model_takes_what_was_measured() -> None:
    found = AccountedRun(100, 0.8, 1, 5, 14, [10.0, 20.0], 9, 0.1, 0.5, 2.0, 0.3)
    assert found.model(False) == IntervalModel(0.1, None, LocalFailures(0.02, 0.5, 2.0), 0.3)
    assert found.model(True, 0.5) == IntervalModel(0.1, Rollbacks(0.5, 0.5), None, 0.3)


# ---- foretold


def test_one_failure_is_foretold_to_the_second() -> None:
    local = IntervalModel(0.5, None, LocalFailures(1, 2, 4))
    assert foretold(local, 10, [], 20) == pytest.approx(1 - 0.5 / 20), "the checkpoint at 20 s is not taken any more"
    assert foretold(local, 10, [18.5], 30) == pytest.approx(1 - (0.5 + 2 + 8 / 4) / 30), "that at 20 s is left out"
    assert foretold(local, 10, [18.5, 19], 30) == pytest.approx(1 - (0.5 + 0.5 + 2 + 8 / 4) / 30)
    back = IntervalModel(0.5, Rollbacks(1, 2))
    assert foretold(back, 100, [18.5], 50) == pytest.approx(1 - (2 + 18.5) / 50)
    assert foretold(back, 10, [18.5], 24) == pytest.approx(18 / 24), "what was lost is not made up for at the end"


def test_a_failure_before_a_checkpoint_is_complete_falls_back_to_the_one_before() -> None:
    slow = IntervalModel(0.5, None, LocalFailures(1, 2, 1), lag_s=3)
    assert foretold(slow, 10, [12.5], 18) == pytest.approx((18 - 0.5 - 2 - 12 + 8.5) / 18, abs=1e-9)
    assert foretold(slow, 10, [13.5], 19.5) == pytest.approx(1 - (0.5 + 2 + 3) / 19.5, abs=1e-9)


@pytest.mark.parametrize(
    "model",
    [
        IntervalModel(0.05, Rollbacks(0.02, 1), None, 0.2),
        IntervalModel(0.05, None, LocalFailures(0.02, 1, 1), 0.2),
        IntervalModel(0.05, None, LocalFailures(0.1, 1, 4), 0.2),
    ],
)
def test_over_many_failures_it_is_the_equation(model: IntervalModel) -> None:
    """But for the moments of checkpoints, which a failure moves here, as intervals count on the clock."""
    failures = model.rollbacks or model.local
    assert failures
    times = np.cumsum(np.random.default_rng(5).exponential(1 / failures.per_s, 4_000))
    for interval_s in (2.0, 5.0):
        expected = model.utilization(interval_s)
        assert foretold(model, interval_s, times, float(times[-1])) == pytest.approx(expected, abs=0.006)
