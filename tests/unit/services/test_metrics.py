"""``ctx.metrics``: what functions may give to it, and what becomes of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos_py.model.errors import UserCodeError
from clonos_py.model.user_metrics import MetricDefinition, MetricKind, UserMetric, after, total
from clonos_py.services.metrics import NAMES_MAX, FunctionMetrics

DEFINED = MetricDefinition("sizes", MetricKind.HISTOGRAM, (1.0, 10.0))
NUMBERS = st.integers(-(2**70), 2**70) | st.floats(-1e300, 1e300)


class Taken:
    """Metrics of one operator, and their values."""

    def __init__(self) -> None:
        self.values: dict[str, UserMetric] = {}
        self.metrics = FunctionMetrics(self._take)

    def _take(self, definition: MetricDefinition, amount: float) -> None:
        self.values[definition.name] = after(self.values.get(definition.name), definition, amount)


@pytest.fixture
def taken() -> Taken:
    return Taken()


def test_a_counter_adds_and_a_gauge_keeps_the_last_number(taken: Taken) -> None:
    for amount in (1, 2.5, np.int64(3), Decimal("0.5"), Fraction(1, 2), True):
        taken.metrics.counter("orders").inc(amount)  # type: ignore[arg-type]
        taken.metrics.gauge("depth").set(amount)  # type: ignore[arg-type]
    taken.metrics.counter("orders").inc()
    assert taken.values["orders"].value == 9.5
    assert taken.values["depth"] == UserMetric(MetricKind.GAUGE, 1)


def test_a_histogram_counts_numbers_up_to_each_bound(taken: Taken) -> None:
    for size in (0, 1, 1.5, 10, 11):
        taken.metrics.histogram("sizes", [1, 10]).observe(size)
    assert taken.values["sizes"] == UserMetric(MetricKind.HISTOGRAM, 23.5, (1.0, 10.0), (2, 2, 1))
    assert taken.values["sizes"].count == 5


@given(st.lists(NUMBERS))
def test_every_value_can_be_stored_and_nothing_is_lost(numbers: list[float]) -> None:
    taken = Taken()
    for number in numbers:
        taken.metrics.counter("n").inc(abs(number))
        taken.metrics.gauge("last").set(number)
        taken.metrics.histogram("sizes", (-5, 0, 1e9)).observe(number)
    stored = msgspec.msgpack.decode(msgspec.msgpack.encode(taken.values), type=dict[str, UserMetric])
    assert stored == taken.values
    if numbers:
        assert stored["sizes"].count == len(numbers)
        assert math.isclose(stored["n"].value, math.fsum(map(abs, map(float, numbers))), rel_tol=1e-9)


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda m: m.counter("two words").inc(), "'two words' is no name of a metric: use letters"),
        (lambda m: m.counter("1st").inc(), "no digit first"),
        (lambda m: m.counter("x" * 101), "at most 100"),
        (lambda m: m.counter("").inc(), "is no name"),
        (lambda m: m.gauge(7).set(1), "7 is no name"),
        (lambda m: m.counter("orders_total"), "'orders_total': leave out '_total'"),
        (lambda m: m.gauge("size_bucket"), "leave out '_bucket'"),
        (lambda m: m.counter("n").inc(-1), "counter 'n' cannot fall by 1: a gauge can"),
        (lambda m: m.counter("n").inc(math.nan), "counter 'n' was given nan: give a finite number"),
        (lambda m: m.counter("n").inc("1"), "counter 'n' was given '1'"),
        (lambda m: m.gauge("g").set(math.inf), "gauge 'g' was given inf"),
        (lambda m: m.gauge("g").set(None), "gauge 'g' was given None"),
        (lambda m: m.histogram("h").observe(1j), "histogram 'h' was given 1j"),
        (lambda m: [m.counter("a"), m.gauge("a")], "'a' is a counter of this operator: give the gauge another name"),
        (lambda m: [m.histogram("h"), m.histogram("h", (1,))], "histogram 'h' has the buckets"),
        (lambda m: m.histogram("h", ()), "give 1 to 64 ascending numbers"),
        (lambda m: m.histogram("h", (2, 1)), "ascending"),
        (lambda m: m.histogram("h", (1, math.inf)), "ascending numbers"),
        (lambda m: m.histogram("h", ("1",)), "ascending numbers"),
        (lambda m: [m.counter(f"n{i}") for i in range(99)], f"'n{NAMES_MAX}' is one too many: an operator has at most"),
    ],
)
def test_a_wrong_use_is_refused_at_once(taken: Taken, use: Callable[[FunctionMetrics], object], message: str) -> None:
    with pytest.raises(UserCodeError) as refused:
        use(taken.metrics)
    assert message in str(refused.value)


def test_a_value_of_another_definition_is_not_continued() -> None:
    """An upgraded job may define a metric in another way."""
    old = after(None, DEFINED, 5)
    assert after(old, DEFINED._replace(bounds=(1.0, 20.0)), 5).count == 1
    assert after(old, MetricDefinition("sizes", MetricKind.COUNTER), 5) == UserMetric(MetricKind.COUNTER, 5)
    assert after(old, DEFINED, 5).count == 2


def test_what_tasks_have_counted_is_added_up_where_that_means_something() -> None:
    one, other = after(None, DEFINED, 5), after(None, DEFINED, 50)
    assert total([one, other]) == UserMetric(MetricKind.HISTOGRAM, 55, DEFINED.bounds, (0, 1, 1))
    assert total([one, after(None, DEFINED._replace(bounds=(7.0,)), 5)]) is None
    assert total([UserMetric(MetricKind.GAUGE, 5)]) is None
    assert total([]) is None
