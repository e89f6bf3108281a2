"""Which watermark the rows of a source's partitions lead to, and the reports of their times."""

from __future__ import annotations

import pytest

from clonos_py.model.counters import EventTimesRead
from clonos_py.model.times import MAX_TIME, MIN_TIME
from clonos_py.task.partition_times import PartitionTimes
from clonos_py.task.time_extents import TimeExtents

SECOND = 1_000_000


def test_the_watermark_follows_the_partition_that_is_farthest_behind() -> None:
    times = PartitionTimes(3)
    times.observe(0, 100)
    assert times.watermark([0, 1]) == MIN_TIME
    times.observe(1, 50)
    times.observe(1, 40)
    assert times.watermark([0, 1]) == 47


def test_partitions_that_are_not_active_count_only_when_no_other_is_left() -> None:
    times = PartitionTimes(0, {0: 100, 1: 50, 2: 7})
    assert times.watermark([2]) == 7
    assert times.watermark([]) == 100
    assert PartitionTimes(0).watermark([]) == MIN_TIME


def test_the_extent_of_event_times_is_reported_again_when_it_has_grown_by_a_second() -> None:
    extents = TimeExtents()
    extents.add("bids", "at", 10 * SECOND, 20 * SECOND)
    assert extents.grown() == [EventTimesRead("bids", "at", 10 * SECOND, 20 * SECOND)]
    extents.add("bids", "at", 10 * SECOND, 20 * SECOND + 1)
    assert extents.grown() == []
    extents.add("bids", "at", 9 * SECOND, 10 * SECOND)
    assert extents.grown() == [EventTimesRead("bids", "at", 9 * SECOND, 20 * SECOND + 1)]


@pytest.mark.parametrize("at", [MIN_TIME, MIN_TIME + 3, MIN_TIME + 10, MIN_TIME + 11])
def test_a_watermark_is_a_time_however_early_a_row_is(at: int) -> None:
    times = PartitionTimes(10)
    times.observe(0, at)
    assert times.watermark([0]) == max(at - 10, MIN_TIME)


def test_a_row_at_the_end_of_time_does_not_end_the_stream() -> None:
    assert PartitionTimes(0, {0: MAX_TIME}).watermark([0]) == MAX_TIME - 1
