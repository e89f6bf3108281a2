from __future__ import annotations

from collections import deque

import pytest

from clonos_py.task.outputs import Outputs
from clonos_py.task.throughput import READ_US, ReadSize, Throughput
from tests.unit.task.plans import UP, three


def measured(*samples: tuple[int, int]) -> Throughput:
    """A throughput with consecutive samples of (rows, microseconds)."""
    found, now_us = Throughput(), 0
    for rows, us in samples:
        found.took(rows, now_us)
        now_us += us
        found.ready(now_us)
    return found


def test_one_row_is_requested_before_the_cost_of_rows_is_measured() -> None:
    found = measured()
    assert not found.known
    assert found.rows_within(1_000_000) == 1


def test_rows_that_take_a_second_are_requested_one_by_one() -> None:
    assert measured((1, 1_000_000)).rows_within(READ_US) == 1


def test_the_latest_samples_count_most() -> None:
    assert measured((100, 1_000)).rows_within(1_000) == 100
    assert 100 < measured((100, 100_000), (100, 1_000), (100, 1_000)).rows_within(100_000) < 1_000
    assert measured(*[(100, 1_000)] * 8, (100, 100_000)).rows_within(1_000) < 3, "one slow sample is enough"


def test_time_without_rows_is_not_measured() -> None:
    found = measured((10, 1_000))
    found.ready(9_000_000)
    assert found.rows_within(1_000) == 10


def test_reads_begin_with_one_row_at_most_double_and_follow_the_cost_of_rows() -> None:
    throughput = Throughput()
    size = ReadSize(throughput)
    sizes, now_us = [], 0
    for cost_us in (*[1] * 12, 2_000, 2_000, 2_000):
        sizes.append(size.next())
        throughput.took(sizes[-1], now_us)
        now_us += sizes[-1] * cost_us
        throughput.ready(now_us)
    assert sizes[:12] == [2**n for n in range(12)]
    assert sizes[13:] == [min(2 * sizes[12], size) for size in sizes[13:]]
    assert sizes[-1] < 40, "50 ms of rows that take 2 ms, with some influence of faster samples"


def steps(count: int, call_us: int, row_us: int) -> list[int]:
    """The rows of so many steps with these costs of a call and of each row."""
    throughput = Throughput()
    size, now_us, rows = ReadSize(throughput), 0, []
    for _ in range(count):
        rows.append(size.next())
        throughput.took(rows[-1], now_us)
        now_us += call_us + rows[-1] * row_us
        throughput.ready(now_us)
    return rows


@pytest.mark.parametrize("call_us", [25_000, 30_000, 60_000, 2_000_000])
def test_steps_grow_although_each_call_takes_long(call_us: int) -> None:
    """A model that takes as long for one row as for a thousand."""
    assert max(steps(30, call_us, row_us=0)) > 1_000
    within_us = max(READ_US - call_us, call_us)
    for row_us in (10, 1_000):
        usual = sorted(steps(200, call_us, row_us))[100]
        assert within_us / row_us / 2.1 <= usual <= within_us / row_us * 2.1


@pytest.mark.parametrize("row_us", [1_000, 2_000, 20_000, 1_000_000])
def test_steps_stay_short_where_rows_take_long_but_for_a_try_now_and_then(row_us: int) -> None:
    found = steps(400, 0, row_us)
    usual = max(1, READ_US // row_us)
    longer = [rows for rows in found if rows > 1.5 * usual]
    assert max(found) <= max(2 * 2 * usual, 2)
    assert len(longer) <= 400 // 50 + 6


def test_a_step_that_takes_long_once_does_not_make_steps_small_for_long() -> None:
    """The machine stood still. Each call takes 60 ms, and the rows hardly any time."""
    throughput = Throughput()
    size, now_us, rows = ReadSize(throughput), 0, []
    for number in range(100):
        rows.append(size.next())
        throughput.took(rows[-1], now_us)
        now_us += 60_000 + rows[-1] * 10 + (20_000_000 if number == 40 else 0)
        throughput.ready(now_us)
    assert rows[40] > 1_000
    assert rows[41] < rows[40] / 100, "rows may have become as slow"
    assert rows[65] > 1_000


def test_what_other_tasks_of_the_thread_do_is_no_cost_of_rows() -> None:
    """A step takes 1 ms for each row. It is the turn of the task again 100 ms later."""
    found, now_us = Throughput(), 0
    for _ in range(3):
        found.took(1, now_us)
        found.worked(1_000)
        found.worked(7_000)  # a later step, without rows
        now_us += 101_000
        found.ready(now_us)
    assert found.rows_at_once() == 50
    assert found.rows_within(303_000) == 3, "but rows that wait do wait for the others"


@pytest.mark.parametrize(("full", "rows"), [(False, 50), (True, 2)])
def test_slow_receivers_make_no_steps_smaller_but_full_operators_do(full: bool, rows: int) -> None:
    found, now_us = Throughput(), 0
    for _ in range(3):
        found.took(2, now_us)
        found.held_back(now_us + 2_000, full)
        found.held_back(now_us + 30_000, full)
        now_us += 50_000
        found.ready(now_us)
    assert found.rows_at_once() == rows
    assert found.rows_within(100_000) == 4


def frames(count: int, call_us: int, row_us: int, in_flight: int = 4) -> list[int]:
    """The rows of so many frames to a receiver with these costs of a call and of each row. So many are in flight when
    the receiver takes one."""
    sender, receiver, now_us, taken = Outputs(three(frame_rows=1_024, adaptive=True), UP), Throughput(), 0, []
    sent = deque(sender.frame_rows * in_flight)
    for _ in range(count):
        taken.append(sent.popleft())
        receiver.took(taken[-1], now_us)
        now_us += call_us + taken[-1] * row_us
        receiver.ready(now_us)
        sender.request_frame_rows(0, receiver.rows_at_once())
        if (change := sender.resizing()) is not None:
            sender.resize(change)
        sent += sender.frame_rows
    return taken


@pytest.mark.parametrize("call_us", [0, 25_000, 40_000, 60_000, 2_000_000])
def test_frames_grow_although_each_call_takes_long(call_us: int) -> None:
    assert max(frames(100, call_us, row_us=0)) == 1_024
    for row_us in (100, 1_000):
        usual = sorted(frames(300, call_us, row_us)[100:])[100]
        wanted = min(max(READ_US - call_us, call_us) // row_us, 1_024)
        assert wanted / 4 <= usual <= wanted * 2


@pytest.mark.parametrize("row_us", [30_000, 1_000_000])
def test_frames_stay_short_where_rows_take_long_but_for_a_try_now_and_then(row_us: int) -> None:
    found = frames(400, 0, row_us)
    assert max(found) == 2
    assert found.count(2) <= 400 // 8


def test_sizes_that_hardly_differ_tell_nothing_about_calls() -> None:
    """Times vary: 33 rows may well take no longer than 31."""
    assert measured(*[(31, 62_000), (33, 62_000)] * 4, (31, 62_000)).rows_at_once() <= 2 * 31


def test_reads_give_at_most_the_requested_rows() -> None:
    size = ReadSize(measured((1_000, 1)))
    assert [size.next(most) for most in (None, None, 3, 100, 100)] == [2, 4, 3, 6, 12]
