"""The model of checkpoint intervals: figures of the paper, limits and shapes of the formulas, precision, bad values.

The paper's printed U(T*) in table 1 does not follow from the values that it prints beside them, so the computed ones
are expected here."""

from __future__ import annotations

import math
from dataclasses import replace
from decimal import Decimal, localcontext
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos_py.checkpoint.interval import (
    IntervalModel,
    LocalFailures,
    Rollbacks,
    best_interval_s,
    daly_interval_s,
    lag_of,
    zhuang_interval_s,
)
from clonos_py.model.errors import SettingError

MINUTE, HOUR = 60.0, 3600.0
EXAMPLE = IntervalModel(5 * MINUTE, Rollbacks(0.005 / MINUTE, 10 * MINUTE))

# ---- the figures of the paper


def digits(value: float, places: int) -> object:
    """Equal to a figure that is printed with so many places."""
    return pytest.approx(value, abs=0.5001 * 10**-places)


def gain(model: IntervalModel, interval_s: float, other_s: float) -> float:
    """How much higher utilization is than at another interval, as a share of that: 0.02 is 2% more work."""
    return model.utilization(interval_s) / model.utilization(other_s) - 1


def test_the_example_of_the_paper() -> None:
    best = EXAMPLE.best_s()
    assert best / MINUTE == digits(46.45202, 5)
    assert EXAMPLE.utilization(best) == digits(0.754078, 6)
    deep = IntervalModel(EXAMPLE.cost_s, EXAMPLE.rollbacks, lag_s=lag_of(50, 0.5 * MINUTE))
    assert (deep.best_s(), deep.utilization(best)) == (best, digits(0.667137, 6))


@pytest.mark.parametrize(("rate", "minutes"), [(0.1, 11.9829), (0.05, 16.0244), (0.025, 21.8151)])
def test_best_intervals_of_figure_5(rate: float, minutes: float) -> None:
    assert best_interval_s(5, rate) == digits(minutes, 4)


def flink(per_hour: float) -> IntervalModel:
    return IntervalModel(5, Rollbacks(per_hour / HOUR, 30), lag_s=lag_of(5, 0.050))


@pytest.mark.parametrize(
    ("per_hour", "percent", "places"),
    [
        (0.8475, 18.912, 3),
        (0.1701, 2.408, 3),
        (0.135, 1.744, 3),
        (0.1161, 1.403, 3),
        (0.0606, 0.498, 3),
        (1_000 * 0.0022, 68.79, 2),
        (2_000 * 0.0022, 226.83, 2),
    ],
)
def test_gains_over_30_minutes_of_real_systems_and_of_many_nodes(per_hour: float, percent: float, places: int) -> None:
    model = flink(per_hour)
    assert gain(model, model.best_s(), 30 * MINUTE) * 100 == digits(percent, places)


def test_a_very_deep_job_is_hardly_utilized() -> None:
    model = IntervalModel(10, Rollbacks(0.005 / MINUTE, 30), lag_s=lag_of(15_000, 5))
    assert model.utilization(model.best_s()) == digits(0.001849, 6)


def test_gains_over_the_intervals_of_daly_and_zhuang() -> None:
    rate, restart_s, cost_s = 11 / HOUR, 5 * MINUTE, 2 * MINUTE
    model = IntervalModel(cost_s, Rollbacks(rate, restart_s), lag_s=lag_of(25, 30))
    best = model.best_s()
    assert gain(model, best, daly_interval_s(cost_s, rate, restart_s)) * 100 == digits(2.29, 2)
    assert gain(model, best, zhuang_interval_s(cost_s, rate, restart_s)) * 100 == digits(3.66, 2)


def test_30_minutes_are_best_at_one_failure_in_19_days() -> None:
    low, high = 1e-4, 1.0
    while high / low > 1 + 1e-9:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if best_interval_s(1, middle / HOUR) > 30 * MINUTE else (low, middle)
    assert low == digits(0.002223, 6)
    assert 1 / low / 24 == pytest.approx(19, abs=0.5)


class Row(NamedTuple):
    """A row of table 1, and its U(T*) as computed from the row."""

    per_minute: float
    depth: int
    cost_s: float
    restart_s: float
    delay_ms: float
    at_30: float
    best_minutes: float
    at_best: float

    @property
    def model(self) -> IntervalModel:
        lag_s = lag_of(self.depth, self.delay_ms / 1000)
        return IntervalModel(self.cost_s, Rollbacks(self.per_minute / MINUTE, self.restart_s), lag_s=lag_s)


TABLE_1 = [
    Row(0.05, 5, 1.6, 23.1, 27.35, 0.4222, 1.0418, 0.9311),
    Row(0.05, 7, 3.09, 23.81, 32.65, 0.4216, 1.4526, 0.9115),
    Row(0.01, 5, 1.07, 23.70, 13.86, 0.8536, 1.8945, 0.9774),
    Row(0.01, 7, 1.59, 24.12, 15.07, 0.8533, 2.3110, 0.9732),
    Row(0.005, 5, 1.15, 25.37, 12.6, 0.9243, 2.7753, 0.9841),
    Row(0.005, 7, 2.57, 24.07, 12.85, 0.9237, 4.1536, 0.9775),
]


@pytest.mark.parametrize("row", TABLE_1, ids=lambda row: f"{row.per_minute} {row.depth}")
def test_table_1(row: Row) -> None:
    best = row.model.best_s()
    assert row.model.utilization(30 * MINUTE) == digits(row.at_30, 4)
    assert best / MINUTE == digits(row.best_minutes, 4)
    assert row.model.utilization(best) == digits(row.at_best, 4)


# ---- the equations as the paper writes them


seconds = st.floats(0.01, 1e4)
rates = st.floats(1e-8, 1e-2)
speeds = st.floats(0.3, 20)


@st.composite
def models(draw: st.DrawFn, kinds: str = "rollbacks local both", fed: bool = False) -> IntervalModel:
    """Models whose parts all matter: a failure in 10 to a million times the cost of a checkpoint. ``fed``: standbys may
    be fed."""
    cost_s, kind = draw(seconds), draw(st.sampled_from(kinds.split()))

    def rate() -> float:
        return draw(st.floats(1e-6, 0.1)) / cost_s

    rollbacks = Rollbacks(rate(), draw(st.floats(0, 10)) * cost_s) if kind != "local" else None
    local = LocalFailures(rate(), draw(st.floats(0, 10)) * cost_s, draw(speeds)) if kind != "rollbacks" else None
    if local and fed and draw(st.booleans()):
        local = replace(local, feed_lag_s=draw(st.floats(0, 100)) * cost_s)
    return IntervalModel(cost_s, rollbacks, local, draw(st.floats(0, 5)) * cost_s)


@given(seconds, st.floats(1.01, 100), rates, st.floats(0, 100), st.floats(0, 100))
def test_rollbacks_follow_equations_3_4_and_10(c: float, times: float, lam: float, R: float, delta: float) -> None:
    T, n = c * times, 5
    if lam * T > 600:
        return
    equation_3 = lam * (T - c) / (math.exp(T * lam) - 1)
    equation_4 = lam * (T - c) / (math.exp(lam * (R + T)) - math.exp(R * lam))
    equation_10 = (
        lam * math.exp(delta * lam) * (T - c) / (math.exp(lam * (R + T + delta * n)) - math.exp(lam * (R + delta * n)))
    )
    rel = 1e-13 / min(lam * T, 1)
    assert IntervalModel(c, Rollbacks(lam)).utilization(T) == pytest.approx(equation_3, rel=rel)
    assert IntervalModel(c, Rollbacks(lam, R)).utilization(T) == pytest.approx(equation_4, rel=rel)
    deep = IntervalModel(c, Rollbacks(lam, R), lag_s=lag_of(n, delta))
    assert deep.utilization(T) == pytest.approx(equation_10, rel=rel)


def test_without_failures_only_checkpoints_cost() -> None:
    assert IntervalModel(1).utilization(10) == 0.9
    assert IntervalModel(1, lag_s=5).utilization(10) == 0.9
    assert IntervalModel(1).best_s() == math.inf


@given(models("rollbacks"), st.floats(1.01, 50))
def test_a_replay_at_normal_speed_costs_what_a_rollback_costs(model: IntervalModel, times: float) -> None:
    assert model.rollbacks
    local = LocalFailures(model.rollbacks.per_s, model.rollbacks.restart_s)
    same = IntervalModel(model.cost_s, None, local, model.lag_s)
    interval_s = model.cost_s * times
    assert same.utilization(interval_s) == pytest.approx(model.utilization(interval_s), rel=1e-12)
    assert same.best_s() == pytest.approx(model.best_s(), rel=1e-12)


def of_local_failures(local: LocalFailures, cost_s: float, lag_s: float, interval_s: float) -> float:
    """U = a (T - c) exp(-lambda R - a D) / expm1(a T), a = lambda / v (E19)."""
    a = local.per_s / local.replay_speed
    return a * (interval_s - cost_s) * math.exp(-local.per_s * local.restart_s - a * lag_s) / math.expm1(a * interval_s)


def of_both(model: IntervalModel, interval_s: float) -> float:
    """T_eff = exp(lambda2 R2) (h(T + D) - h(D)) / lambda2, with h(z) = (g(z) / g(0))^v and
    g(z) = lambda1 + lambda2 exp(lambda (R1 + z / v)) (E19), with 100 digits."""
    local, rollbacks = model.local, model.rollbacks
    assert local
    assert rollbacks
    with localcontext() as context:
        context.prec = 100
        one, two, speed = Decimal(local.per_s), Decimal(rollbacks.per_s), Decimal(local.replay_speed)
        restart_s, lag_s = Decimal(local.restart_s), Decimal(model.lag_s)

        def g(behind_s: Decimal) -> Decimal:
            return one + two * ((one + two) * (restart_s + behind_s / speed)).exp()

        def h(behind_s: Decimal) -> Decimal:
            return (speed * (g(behind_s) / g(Decimal(0))).ln()).exp()

        again = (two * Decimal(rollbacks.restart_s)).exp()
        return float(again * (h(lag_s + Decimal(interval_s)) - h(lag_s)) / two)


@given(models("local"), st.floats(1.01, 50))
def test_local_failures_follow_their_formula(model: IntervalModel, times: float) -> None:
    assert model.local
    interval_s = model.cost_s * times
    expected = of_local_failures(model.local, model.cost_s, model.lag_s, interval_s)
    assert model.utilization(interval_s) == pytest.approx(expected, rel=1e-12)


@given(models("both"), st.floats(1.01, 50))
def test_both_kinds_of_failures_follow_their_formula(model: IntervalModel, times: float) -> None:
    interval_s = model.cost_s * times
    assert model.effective_s(interval_s) == pytest.approx(of_both(model, interval_s), rel=1e-13)


@pytest.mark.parametrize("rollbacks_per_s", [0.25, 1e-3, 1e-12, 1e-18, 1e-30])
@pytest.mark.parametrize("local_per_s", [0.5, 1e-3, 1e-12, 1e-18, 1e-30])
@pytest.mark.parametrize("nudge", [0, 1e-15, -1e-12, 1e-6])
def test_the_formula_loses_no_digits_near_its_limits(rollbacks_per_s: float, local_per_s: float, nudge: float) -> None:
    """Where a rate goes to 0, and where both weigh the same (a = lambda2, with the speed that makes them equal)."""
    for speed in (0.5, 3.0, local_per_s / rollbacks_per_s * (1 + nudge)):
        if 0.1 < speed < 100:
            model = IntervalModel(1, Rollbacks(rollbacks_per_s, 5), LocalFailures(local_per_s, 2, speed), 0.5)
            for interval_s in (1.001, 30.0):
                assert model.effective_s(interval_s) == pytest.approx(of_both(model, interval_s), rel=2e-14)


def test_a_rollback_during_a_local_recovery_counts() -> None:
    """Local recoveries take so long that a rollback ends most of them. Alone, local failures would leave 2%."""
    slow = LocalFailures(0.02, 200)
    assert of_local_failures(slow, 1, 0, 10) < 0.02
    assert IntervalModel(1, Rollbacks(0.02, 1), slow).utilization(10) > 0.3


@given(models("both"), st.floats(1.01, 50))
def test_a_kind_of_failures_that_hardly_happens_does_not_matter(model: IntervalModel, times: float) -> None:
    assert model.local
    assert model.rollbacks
    interval_s = model.cost_s * times
    rare_rollbacks = Rollbacks(1e-15 / interval_s, model.rollbacks.restart_s)
    rare_local = LocalFailures(1e-15 / interval_s, model.local.restart_s, model.local.replay_speed)
    for rare, without in (
        (replace(model, rollbacks=rare_rollbacks), replace(model, rollbacks=None)),
        (replace(model, local=rare_local), replace(model, local=None)),
    ):
        assert rare.utilization(interval_s) == pytest.approx(without.utilization(interval_s), rel=1e-10)
        assert rare.best_s() == pytest.approx(without.best_s(), rel=1e-6)


@given(models("both"), st.floats(1.01, 50), st.sampled_from([-1e-6, -1e-9, -1e-15, 0, 1e-15, 1e-9, 1e-6]))
def test_utilization_is_continuous_where_both_rates_weigh_the_same(
    model: IntervalModel, times: float, nudge: float
) -> None:
    assert model.local
    interval_s = model.cost_s * times

    def at(per_s: float) -> float:
        rollbacks = Rollbacks(per_s, model.cost_s)
        return IntervalModel(model.cost_s, rollbacks, model.local, model.lag_s).utilization(interval_s)

    rate = model.local.weight_per_s
    assert at(rate * (1 + nudge)) == pytest.approx(at(rate), rel=100 * abs(nudge) + 1e-13)


@given(models("local both"), st.floats(1.01, 50))
def test_a_feed_further_behind_than_any_failure_changes_nothing(model: IntervalModel, times: float) -> None:
    assert model.local
    interval_s = model.cost_s * times
    fed = replace(model, local=replace(model.local, feed_lag_s=interval_s + model.lag_s))
    assert fed.effective_s(interval_s) == pytest.approx(model.effective_s(interval_s), rel=1e-12)


@given(models("local"), st.floats(1.01, 50), st.floats(0, 1))
def test_with_fed_standbys_time_grows_evenly_beyond_their_lag(model: IntervalModel, times: float, share: float) -> None:
    """T_eff is that until the lag, and exp(lambda (R + f / v)) times the rest (E19)."""
    assert model.local
    interval_s, local = (
        model.cost_s * times,
        replace(model.local, feed_lag_s=share * model.cost_s * times + model.lag_s),
    )
    assert local.feed_lag_s is not None
    before_s = local.feed_lag_s - model.lag_s
    rest_s = (interval_s - before_s) * math.exp(local.per_s * local.recovery_s(math.inf))
    expected_s = rest_s + (model.effective_s(before_s) if before_s else 0)
    assert replace(model, local=local).effective_s(interval_s) == pytest.approx(expected_s, rel=1e-12)


def test_with_fed_standbys_only_rollbacks_make_an_interval_too_long() -> None:
    fed = LocalFailures(0.01, 1, 1, feed_lag_s=0.1)
    assert IntervalModel(1, None, fed).best_s() == math.inf
    assert IntervalModel(1, Rollbacks(0.001), fed).best_s() == pytest.approx(best_interval_s(1, 0.001), rel=0.01)
    behind = replace(fed, feed_lag_s=100.0)
    assert IntervalModel(1, None, behind).best_s() == IntervalModel(1, None, replace(fed, feed_lag_s=None)).best_s()


# ---- shapes


@given(models(fed=True), st.floats(1.0001, 50))
def test_no_interval_is_better_than_the_best(model: IntervalModel, times: float) -> None:
    best = model.best_s()
    assert best > model.cost_s
    if best == math.inf:
        assert model.utilization(model.cost_s * 1e9 * times) > model.utilization(model.cost_s * times)
        return
    highest = model.utilization(best)
    for other in (model.cost_s * times, best * times, best * 1.01, model.cost_s + (best - model.cost_s) / times):
        if other > model.cost_s:
            assert model.utilization(other) <= highest * (1 + 1e-12)
    assert model.utilization(best * 1.05) < highest
    assert model.utilization(model.cost_s + (best - model.cost_s) * 0.95) < highest


@given(models(fed=True), st.floats(1.01, 50), st.floats(1.001, 5))
def test_more_failures_and_slower_recoveries_cost_utilization(model: IntervalModel, times: float, more: float) -> None:
    """More rollbacks do unless a local recovery takes longer: then a rollback ends it early."""
    interval_s = model.cost_s * times
    worse = [replace(model, lag_s=model.lag_s * more)]
    if rollbacks := model.rollbacks:
        worse.append(replace(model, rollbacks=replace(rollbacks, restart_s=rollbacks.restart_s + more)))
        if model.local is None or (model.local.restart_s <= rollbacks.restart_s and model.local.replay_speed >= 1):
            worse.append(replace(model, rollbacks=replace(rollbacks, per_s=rollbacks.per_s * more)))
    if local := model.local:
        for changed in (
            replace(local, per_s=local.per_s * more),
            replace(local, restart_s=local.restart_s + more),
            replace(local, replay_speed=local.replay_speed / more),
        ):
            worse.append(replace(model, local=changed))
    best = model.utilization(interval_s)
    assert all(other.utilization(interval_s) <= best * (1 + 1e-12) for other in worse)


@given(models(fed=True), st.floats(1.01, 50))
def test_utilization_is_a_share(model: IntervalModel, times: float) -> None:
    assert 0 <= model.utilization(model.cost_s * times) < 1


@given(seconds, rates, st.floats(1, 100))
def test_a_faster_replay_makes_the_best_interval_longer_by_about_its_root(c: float, rate: float, speed: float) -> None:
    cost_s = c * 1e-3
    slow = IntervalModel(cost_s, None, LocalFailures(rate, 1)).best_s()
    fast = IntervalModel(cost_s, None, LocalFailures(rate, 1, speed)).best_s()
    assert fast == best_interval_s(cost_s, rate / speed)
    assert fast / slow == pytest.approx(math.sqrt(speed), rel=math.sqrt(cost_s * rate))


@given(models("both"))
def test_a_second_kind_of_failures_never_makes_the_best_interval_longer_than_both_alone(model: IntervalModel) -> None:
    alone = [
        IntervalModel(model.cost_s, model.rollbacks, None, model.lag_s).best_s(),
        IntervalModel(model.cost_s, None, model.local, model.lag_s).best_s(),
    ]
    assert model.best_s() <= max(alone) * (1 + 1e-9)


def test_a_utilization_that_no_float_holds_is_0() -> None:
    assert IntervalModel(1, Rollbacks(1, 1_000)).utilization(2) == 0
    both = IntervalModel(1, Rollbacks(1, 1_000), LocalFailures(1, 1_000))
    assert both.utilization(2_000) == 0
    assert math.isfinite(both.best_s())


# ---- precision


def exactly(share: float) -> Decimal:
    """The root of t + exp(-t) - 1 = ``share``, to 40 digits."""
    with localcontext() as context:
        context.prec = 60
        wanted = Decimal(share)
        time = (2 * wanted).sqrt()
        for _ in range(200):
            step = (time + (-time).exp() - 1 - wanted) / (1 - (-time).exp())
            time -= step
            if abs(step) < time * Decimal(10) ** -40:
                break
        return time


@pytest.mark.parametrize("exponent", [power / 4 for power in range(-48, 1)])
def test_the_best_interval_is_exact_for_every_cost(exponent: float) -> None:
    share = 10**exponent
    for rate in (1.0, 2.0**-20):
        assert best_interval_s(share / rate, rate) * rate == pytest.approx(float(exactly(share)), rel=1e-13)


@given(st.floats(1e-12, 1))
def test_the_best_interval_is_exact(share: float) -> None:
    assert best_interval_s(share, 1) == pytest.approx(float(exactly(share)), rel=1e-13)


def exactly_for_both(local: LocalFailures, rollbacks: Rollbacks, cost_s: float) -> float:
    """The root of the derivative of (T - c) / T_eff without lag, by bisection with 60 digits."""
    with localcontext() as context:
        context.prec = 60
        one, two, c = Decimal(local.per_s), Decimal(rollbacks.per_s), Decimal(cost_s)
        both, speed, restart_s = one + two, Decimal(local.replay_speed), Decimal(local.restart_s)

        def weight(time: Decimal) -> Decimal:
            return two * (both * (restart_s + time / speed)).exp()

        def rises(time: Decimal) -> bool:
            grown = (speed * ((one + weight(time)) / (one + weight(Decimal(0)))).ln()).exp()
            return grown - 1 > (time - c) * grown * both * weight(time) / (one + weight(time))

        low, high = c, c + 100 / min(one / speed, two)
        for _ in range(120):
            middle = (low + high) / 2
            low, high = (middle, high) if rises(middle) else (low, middle)
        return float(low)


@pytest.mark.parametrize("share", [1e-12, 1e-9, 1e-6, 1e-3, 0.1, 1])
@pytest.mark.parametrize("local", [LocalFailures(0.75, 0, 4), LocalFailures(2, 1e-3, 20), LocalFailures(0.01, 1, 0.5)])
def test_the_best_interval_for_both_kinds_is_as_exact(share: float, local: LocalFailures) -> None:
    rollbacks = Rollbacks(0.25, 0.05)
    expected = exactly_for_both(local, rollbacks, share)
    assert IntervalModel(share, rollbacks, local).best_s() == pytest.approx(expected, rel=1e-9)


# ---- what else the interval decides


def test_bounds_follow_from_the_interval() -> None:
    model = IntervalModel(2, Rollbacks(1e-3, 5), LocalFailures(1e-3, 1, 4), lag_s=3)
    found = model.bounds(20)
    assert (found.visible_s_mean, found.visible_s_max) == (14, 23)
    assert (found.replay_s_mean, found.replay_s_max) == (13 / 4, 23 / 4)
    assert found.retained_s_max == 23
    assert IntervalModel(2, Rollbacks(1e-3, 5), lag_s=3).bounds(20).replay_s_max == 23
    assert model.longest_s(2**30, 2**25) == 29
    fed = IntervalModel(2, None, LocalFailures(1e-3, 1, 4, feed_lag_s=8), lag_s=3).bounds(20)
    assert (fed.replay_s_mean, fed.replay_s_max) == ((8 - 25 / 40) / 4, 8 / 4)


# ---- bad values


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: IntervalModel(-1), r"cost_s is -1: give a finite number of at least 0"),
        (lambda: IntervalModel(math.inf), "cost_s is inf"),
        (lambda: IntervalModel(1, lag_s=math.nan), "lag_s is nan"),
        (lambda: Rollbacks(0), "per_s is 0: give a finite number of more than 0"),
        (lambda: Rollbacks(-1), "per_s is -1"),
        (lambda: Rollbacks(1, -1), "restart_s is -1"),
        (lambda: LocalFailures(math.inf), "per_s is inf"),
        (lambda: LocalFailures(1, 1, 0), "replay_speed is 0"),
        (lambda: LocalFailures(1, 1, 1, -1), "feed_lag_s is -1"),
        (lambda: IntervalModel(1).utilization(1), "an interval of 1 s leaves no time to work, as a checkpoint costs 1"),
        (lambda: IntervalModel(1).utilization(math.inf), "an interval of inf s"),
        (lambda: IntervalModel(1).utilization(math.nan), "an interval of nan s"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused(make: object, said: str) -> None:
    assert callable(make)
    with pytest.raises(SettingError, match=said):
        make()
