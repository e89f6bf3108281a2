"""The simulation agrees with the model, within three standard errors, and not with a model that is wrong."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from clonos_py.checkpoint.interval import IntervalModel, LocalFailures, Rollbacks, lag_of
from clonos_py.evaluation.intervals.simulation import Times, simulate

STANDARD_ERRORS = 3.0
SEED = 3
LOCAL = LocalFailures(0.02, 2, 3)
"""Times are in minutes here, as in the paper: the model has no unit of its own."""


def paper(per_minute: float, depth: int = 1) -> IntervalModel:
    """The systems of figures 5 and 12."""
    return IntervalModel(5, Rollbacks(per_minute, 10), lag_s=lag_of(depth, 0.5))


def simulated(model: IntervalModel, interval_s: float) -> Times:
    return simulate(model, interval_s, np.random.default_rng(SEED))


def apart(found: Times, expected: float) -> float:
    """The difference in standard errors."""
    return abs(float(found.mean()) - expected) / (float(found.std(ddof=1)) / math.sqrt(len(found)))


@pytest.mark.parametrize("times_best", [0.5, 1, 2])
@pytest.mark.parametrize("per_minute", [0.1, 0.05, 0.025, 0.005])
@pytest.mark.parametrize("depth", [1, 5, 50])
def test_rollbacks_agree_with_equations_4_and_10(per_minute: float, depth: int, times_best: float) -> None:
    model = paper(per_minute, depth)
    interval = max(model.best_s() * times_best, 1.2 * model.cost_s)
    assert apart(simulated(model, interval), model.utilization(interval)) < STANDARD_ERRORS


@pytest.mark.parametrize("lag", [0, 4, 40])
@pytest.mark.parametrize("speed", [0.5, 1, 3, 20])
def test_local_failures_agree_with_their_formula(speed: float, lag: float) -> None:
    model = IntervalModel(5, None, replace(LOCAL, replay_speed=speed), lag)
    for interval in (model.best_s(), 40.0):
        assert apart(simulated(model, interval), model.utilization(interval)) < STANDARD_ERRORS


@pytest.mark.parametrize("lag", [0, 4])
@pytest.mark.parametrize("fed", [0, 3, 15, 1_000])
@pytest.mark.parametrize("rollbacks", [None, Rollbacks(0.001, 30), Rollbacks(0.02, 1)])
def test_failures_with_fed_standbys_agree_with_their_formula(
    rollbacks: Rollbacks | None, fed: float, lag: float
) -> None:
    model = IntervalModel(1, rollbacks, replace(LOCAL, feed_lag_s=fed), lag)
    for interval in (10.0, 40.0):
        assert apart(simulated(model, interval), model.utilization(interval)) < STANDARD_ERRORS


@pytest.mark.parametrize("lag", [0, 4])
@pytest.mark.parametrize("rollbacks", [Rollbacks(0.001, 30), Rollbacks(0.02 / 3, 10), Rollbacks(0.02, 1)])
def test_both_kinds_agree_with_their_formula(rollbacks: Rollbacks, lag: float) -> None:
    model = IntervalModel(1, rollbacks, LOCAL, lag)
    for interval in (model.best_s(), 40.0):
        assert apart(simulated(model, interval), model.utilization(interval)) < STANDARD_ERRORS


@pytest.mark.parametrize("local", [LocalFailures(0.02, 30, 0.5), LocalFailures(0.05, 5, 2)])
@pytest.mark.parametrize("rollbacks", [Rollbacks(0.005, 10), Rollbacks(0.02, 1)])
def test_they_agree_where_rollbacks_end_many_local_recoveries(rollbacks: Rollbacks, local: LocalFailures) -> None:
    model = IntervalModel(1, rollbacks, local, 2)
    best = model.best_s()
    found = simulated(model, best)
    assert apart(found, model.utilization(best)) < STANDARD_ERRORS
    assert apart(found, neglecting(model, best)) > STANDARD_ERRORS


def neglecting(model: IntervalModel, interval: float) -> float:
    """Utilization if no rollback came during a local recovery."""
    local, rollbacks, lag = model.local, model.rollbacks, model.lag_s
    assert local
    assert rollbacks
    a, rate = local.weight_per_s, rollbacks.per_s
    recovered = math.exp(local.per_s * local.restart_s) / (a - rate)

    def since_rollback(behind: float) -> float:
        done = recovered * (math.exp(a * behind) - math.exp(rate * behind))
        return done + math.expm1(rate * rollbacks.restart_s) * math.expm1(rate * behind) / rate

    return (interval - model.cost_s) / (since_rollback(interval + lag) - since_rollback(lag))


@pytest.mark.parametrize(
    "wrong",
    [
        replace(paper(0.025, 5), rollbacks=Rollbacks(0.025, 9.6)),
        replace(paper(0.025, 5), cost_s=4.9),
        replace(paper(0.025, 5), lag_s=2.2),
        replace(paper(0.025, 5), rollbacks=None, local=LocalFailures(0.025, 10, 1.02)),
    ],
)
def test_the_comparison_finds_a_model_that_is_slightly_wrong(wrong: IntervalModel) -> None:
    model = paper(0.025, 5)
    interval = model.best_s()
    assert apart(simulated(model, interval), wrong.utilization(interval)) > STANDARD_ERRORS


def test_a_run_with_few_failures_loses_only_the_cost_of_its_checkpoints() -> None:
    rare = IntervalModel(2, Rollbacks(1e-6), lag_s=1)
    found = simulate(rare, 10, np.random.default_rng(SEED), runs=3, failures=10)
    assert found == pytest.approx([0.8] * 3, rel=1e-4)


def test_the_same_seed_gives_the_same_runs() -> None:
    model = IntervalModel(1, Rollbacks(0.01, 10), LOCAL, 4)
    assert (simulated(model, 20) == simulated(model, 20)).all()
