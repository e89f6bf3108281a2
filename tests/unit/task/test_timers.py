from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from clonos_py.task.timers import Timers


def fired(timers: Timers, now_us: int) -> list[tuple[int, int]]:
    found = []
    while (timer := timers.due(now_us)) is not None:
        timers.remove(timer[1], timer[0])
        found.append(timer)
    return found


def test_timers_fire_by_time_then_by_operator() -> None:
    timers = Timers()
    for operator, at_us in [(1, 30), (2, 10), (0, 30)]:
        timers.set(operator, at_us)
    assert timers.next_us == 10
    assert fired(timers, 30) == [(10, 2), (30, 0), (30, 1)]
    assert timers.next_us is None


def test_nothing_fires_before_its_time() -> None:
    timers = Timers()
    timers.set(0, 30)
    assert fired(timers, 29) == []


def test_setting_a_timer_twice_is_setting_it_once() -> None:
    timers = Timers()
    timers.set(0, 30)
    timers.set(0, 30)
    assert fired(timers, 30) == [(30, 0)]


def test_a_timer_that_was_cleared_does_not_fire() -> None:
    timers = Timers()
    timers.set(0, 30)
    timers.remove(0, 30)
    timers.remove(0, 30)
    assert timers.all == []


@given(st.sets(st.tuples(st.integers(0, 9), st.integers(0, 3))))
def test_the_order_of_setting_does_not_matter(wanted: set[tuple[int, int]]) -> None:
    one, other = Timers(), Timers()
    for at_us, operator in sorted(wanted):
        one.set(operator, at_us)
    for at_us, operator in sorted(wanted, reverse=True):
        other.set(operator, at_us)
    assert one.all == other.all == sorted(wanted)
