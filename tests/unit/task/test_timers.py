from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from clonos_py.task.timers import Timers

HOUR_US = 3_600_000_000


class Day:
    """A time of day that can be set."""

    def __init__(self) -> None:
        self.now_us, self.ahead_us = 0, 0

    def __call__(self) -> int:
        return self.now_us + self.ahead_us


def fired(timers: Timers, day: Day, now_us: int) -> list[tuple[int, int]]:
    """The timers that fire when the steady clock is at ``now_us``."""
    day.now_us = now_us
    found = []
    while (timer := timers.due(now_us)) is not None:
        timers.remove(timer[1], timer[0])
        found.append(timer)
    return found


def test_timers_fire_by_time_then_by_operator() -> None:
    timers = Timers(day := Day())
    for operator, at_us in [(1, 30), (2, 10), (0, 30)]:
        timers.set(operator, at_us)
    assert timers.wake_us(0) == 10
    assert fired(timers, day, 30) == [(10, 2), (30, 0), (30, 1)]
    assert timers.wake_us(30) is None


def test_no_timer_fires_before_its_time() -> None:
    timers = Timers(day := Day())
    timers.set(0, 30)
    assert fired(timers, day, 29) == []


def test_a_timer_fires_in_time_although_the_time_of_day_is_set_back() -> None:
    timers = Timers(day := Day())
    timers.set(0, 1_000_000)
    assert fired(timers, day, 0) == []
    day.ahead_us = -HOUR_US
    assert fired(timers, day, 999_999) == []
    wake_us = timers.wake_us(999_999)
    assert wake_us is not None
    assert wake_us < 1_100_000
    assert fired(timers, day, wake_us) == [(1_000_000, 0)]


def test_a_timer_fires_in_time_although_the_time_of_day_is_set_back_at_once() -> None:
    timers = Timers(day := Day())
    timers.set(0, 1_000_000)
    day.ahead_us = -HOUR_US
    assert fired(timers, day, 0) == []
    assert fired(timers, day, 1_100_000) == [(1_000_000, 0)]


def test_a_timer_of_a_predecessor_with_a_fast_clock_fires_after_its_remaining_delay() -> None:
    timers = Timers(day := Day())
    timers.set(0, HOUR_US + 1_000_000, last_answered_us=HOUR_US)
    assert fired(timers, day, 0) == []
    assert fired(timers, day, 1_100_000) == [(HOUR_US + 1_000_000, 0)]


def test_a_timer_of_a_snapshot_fires_after_its_remaining_delay_under_any_clocks() -> None:
    """The clock of the first task is an hour ahead. That of the second, which takes the next snapshot, is not."""
    timer = HOUR_US + 1_000_000, 0
    first = Timers(ahead := Day())
    ahead.ahead_us = HOUR_US
    first.set(0, HOUR_US + 1_000_000)
    assert fired(first, ahead, 0) == fired(first, ahead, 200_000) == []
    assert first.left_us == [800_000]
    second = Timers(day := Day())
    second.restore(first.all, first.left_us)
    assert second.left_us == [800_000]
    assert fired(second, day, 300_000) == []
    assert fired(second, day, 500_000) == []
    assert second.left_us == [600_000]
    third = Timers(day := Day())
    third.restore(second.all, second.left_us)
    assert fired(third, day, 600_000) == []
    assert fired(third, day, 1_199_999 + 10_000) == []
    assert fired(third, day, 1_200_000 + 10_000) == [timer]


def test_a_timer_whose_time_of_day_is_skipped_fires_at_once() -> None:
    timers = Timers(day := Day())
    timers.set(0, 1_000_000)
    assert fired(timers, day, 500_000) == []
    day.ahead_us = HOUR_US
    assert fired(timers, day, 500_001) == [(1_000_000, 0)]


def test_a_timer_that_is_set_after_the_time_of_day_was_set_back_fires_at_that_time() -> None:
    timers = Timers(day := Day())
    day.ahead_us = -HOUR_US
    timers.set(0, 1_000_000 - HOUR_US)
    assert fired(timers, day, 999_999) == []
    assert fired(timers, day, 1_000_000) == [(1_000_000 - HOUR_US, 0)]


def test_a_timer_that_is_set_twice_fires_once() -> None:
    timers = Timers(day := Day())
    timers.set(0, 30)
    timers.set(0, 30)
    assert fired(timers, day, 30) == [(30, 0)]


def test_a_timer_that_was_cleared_does_not_fire() -> None:
    timers = Timers(Day())
    timers.set(0, 30)
    timers.remove(0, 30)
    timers.remove(0, 30)
    assert timers.all == []


@given(st.sets(st.tuples(st.integers(0, 9), st.integers(0, 3))))
def test_timers_do_not_depend_on_the_order_of_setting(timers: set[tuple[int, int]]) -> None:
    one, other = Timers(Day()), Timers(Day())
    for at_us, operator in sorted(timers):
        one.set(operator, at_us)
    for at_us, operator in sorted(timers, reverse=True):
        other.set(operator, at_us)
    assert one.all == other.all == sorted(timers)
