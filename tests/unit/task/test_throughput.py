from __future__ import annotations

import pytest

from clonos_py.task.throughput import READ_US, ReadSize, Throughput


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


def test_sizes_that_hardly_differ_tell_nothing_about_calls() -> None:
    """Times vary: 33 rows may well take no longer than 31."""
    assert measured(*[(31, 62_000), (33, 62_000)] * 4, (31, 62_000)).rows_at_once() <= 2 * 31


def test_reads_give_at_most_the_requested_rows() -> None:
    size = ReadSize(measured((1_000, 1)))
    assert [size.next(most) for most in (None, None, 3, 100, 100)] == [2, 4, 3, 6, 12]
