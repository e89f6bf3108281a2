"""Which watermark the rows of a source's partitions come to, and what people are told of their times."""

from __future__ import annotations

from clonos_py.model.counters import EventTimesRead
from clonos_py.model.times import MIN_TIME
from clonos_py.task.partition_times import PartitionTimes
from clonos_py.task.time_extents import TimeExtents

SECOND = 1_000_000


def test_the_partition_that_is_farthest_behind_decides() -> None:
    times = PartitionTimes(3)
    times.observe(0, 100)
    assert times.watermark([0, 1], []) == MIN_TIME
    times.observe(1, 50)
    times.observe(1, 40)
    assert times.watermark([0, 1], []) == 47


def test_of_partitions_that_have_finished_only_the_last_counts_and_only_alone() -> None:
    times = PartitionTimes(0, {0: 100, 1: 50, 2: 7})
    assert times.watermark([2], [0, 1]) == 7
    assert times.watermark([], [0, 1]) == 100
    assert times.watermark([], []) == MIN_TIME


def test_extents_are_told_again_when_they_have_grown_by_a_second() -> None:
    extents = TimeExtents()
    extents.add("bids", "at", 10 * SECOND, 20 * SECOND)
    assert extents.grown() == [EventTimesRead("bids", "at", 10 * SECOND, 20 * SECOND)]
    extents.add("bids", "at", 10 * SECOND, 20 * SECOND + 1)
    assert extents.grown() == []
    extents.add("bids", "at", 9 * SECOND, 10 * SECOND)
    assert extents.grown() == [EventTimesRead("bids", "at", 9 * SECOND, 20 * SECOND + 1)]
