"""Warnings of implausible event times."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from clonos_py.model.counters import EventTimesRead
from clonos_py.runtime.implausible_times import TimeWatch

NOW_US = int(datetime(2026, 3, 1, tzinfo=UTC).timestamp()) * 1_000_000
DAY_US = 86_400_000_000


def warned(earliest_us: int, latest_us: int) -> list[str]:
    found = TimeWatch().warnings([EventTimesRead("bids", "at", earliest_us, latest_us)], NOW_US)
    return [warning.reason for warning in found]


@pytest.mark.parametrize(
    ("value", "shown", "guess"),
    [
        (NOW_US // 1_000, "1970-01-21 12:18:43, before 1990: it is probably in milliseconds", "Epoch('ms')"),
        (NOW_US // 1_000_000, "1970-01-01 00:29:32, before 1990: it is probably in seconds", "Epoch('s')"),
        (NOW_US * 1_000, "in the year 58,1", "Epoch('ns')"),
        (0, "1970-01-01 00:00:00, before 1990: usually its unit is another one", "Epoch('ms')"),
        (NOW_US + 2 * DAY_US, "2026-03-03 00:00:00, more than a day ahead of the clock: usually", "Epoch"),
        (-(2**63) + 1, "in the year -29", "Epoch"),
    ],
)
def test_a_time_in_a_wrong_unit_is_shown_as_a_date_with_the_remedy(value: int, shown: str, guess: str) -> None:
    (reason,) = warned(value, value)
    assert reason.startswith("source 'bids': event time 'at' is ")
    assert shown in reason
    assert guess in reason


@pytest.mark.parametrize("value", [631_152_000_000_000, NOW_US, NOW_US + DAY_US])
def test_times_between_1990_and_tomorrow_are_not_reported(value: int) -> None:
    assert warned(value, value) == []
    assert len(warned(631_152_000_000_000 - 1, value)) == 1
    assert len(warned(value, NOW_US + DAY_US + 1)) == 1


def test_each_source_is_reported_once() -> None:
    watch = TimeWatch()
    read = [EventTimesRead("bids", "at", 0, 0), EventTimesRead("asks", "at", 0, 0)]
    assert [warning.source for warning in watch.warnings(read, NOW_US)] == ["bids", "asks"]
    assert list(watch.warnings([EventTimesRead("bids", "at", -1, NOW_US)], NOW_US)) == []
