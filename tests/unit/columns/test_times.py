"""Times from text and numbers, and back."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from clonos_py.columns.times import (
    DURATION,
    EPOCH_NUMBER,
    MOMENT,
    date_from_iso,
    duration_from_iso,
    duration_to_iso,
    extent,
    from_epoch,
    from_iso,
    instants,
    moments,
    to_epoch,
    to_iso,
    to_plain_epoch,
)
from clonos_py.model.time_formats import EPOCH_UNITS, EpochUnit

YEARS = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC))


def array(values: list[Any], type_: pa.DataType | None = None) -> Any:
    return pa.array(values, type_)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-01-31T09:30:00Z", datetime(2026, 1, 31, 9, 30, tzinfo=UTC)),
        ("2026-01-31 09:30", datetime(2026, 1, 31, 9, 30, tzinfo=UTC)),
        ("2026-01-31", datetime(2026, 1, 31, tzinfo=UTC)),
        ("2026-01-31T09:30:00.25+02:00", datetime(2026, 1, 31, 7, 30, 0, 250_000, tzinfo=UTC)),
        ("2026-01-31T09:30:00-0130", datetime(2026, 1, 31, 11, tzinfo=UTC)),
        ("2026-01-31T09:30:00.123456789Z", datetime(2026, 1, 31, 9, 30, 0, 123_456, tzinfo=UTC)),
    ],
)
def test_iso_8601_is_read_and_text_without_a_zone_is_utc(text: str, expected: datetime) -> None:
    assert from_iso(array([text])).to_pylist() == [expected]
    assert from_iso(array([text, None, "1970-01-01T00:00:00Z", "1970-01-01"])).to_pylist()[:2] == [expected, None]


@pytest.mark.parametrize("text", ["", "2026-02-30", "yesterday", "2026-01-31T25:00:00Z", "31/01/2026", "1769851800"])
def test_other_text_is_no_iso_8601(text: str) -> None:
    with pytest.raises(pa.ArrowInvalid):
        from_iso(array([text]))


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+02:00", "9999-12-31T23:59:59-02:00"])
def test_a_text_whose_zone_moves_it_out_of_the_years_of_a_datetime_is_none(text: str) -> None:
    with pytest.raises(pa.ArrowInvalid, match="outside of the years 1 to 9999"):
        from_iso(array([None, text, "2026-01-31"]))


@given(st.lists(st.none() | YEARS))
def test_a_time_survives_its_text_form(times: list[datetime | None]) -> None:
    column = array(times, MOMENT)
    assert from_iso(to_iso(column)).equals(column)
    assert [text and datetime.fromisoformat(text) for text in to_iso(column).to_pylist()] == times


@given(
    st.lists(st.none() | st.datetimes(datetime(1728, 1, 1), datetime(2241, 12, 31), timezones=st.just(UTC))),
    st.sampled_from(EPOCH_UNITS),
)
@example([datetime(2020, 1, 1, 1, 2, 3, 4, UTC), None], "s")
def test_a_time_survives_its_json_number(times: list[datetime | None], unit: EpochUnit) -> None:
    column = array(times, MOMENT)
    numbers = [None if n is None else Decimal(json.dumps(n)) for n in to_plain_epoch(column, unit).to_pylist()]
    assert from_epoch(pa.array(numbers, EPOCH_NUMBER), unit).equals(column)


@pytest.mark.parametrize("text", ["0000-01-01", "-0001-12-31", "10000-01-01", "yesterday"])
def test_a_date_outside_of_the_years_of_a_date_is_an_error(text: str) -> None:
    with pytest.raises(pa.ArrowInvalid):
        date_from_iso(array([None, "2026-01-31", text]))
    assert date_from_iso(array([None, "2026-01-31"])).to_pylist() == [None, date(2026, 1, 31)]


@given(
    st.lists(st.none() | st.datetimes(datetime(1700, 1, 1), datetime(2250, 1, 1), timezones=st.just(UTC))),
    st.sampled_from(EPOCH_UNITS),
)
def test_a_time_survives_its_number(times: list[datetime | None], unit: EpochUnit) -> None:
    column = array(times, MOMENT)
    numbers = to_epoch(column, unit)
    assert from_epoch(numbers.cast(EPOCH_NUMBER) if pa.types.is_decimal(numbers.type) else numbers, unit).equals(column)


@pytest.mark.parametrize(
    ("number", "unit", "expected"),
    [(1, "s", 1_000_000), (1, "ms", 1_000), (1, "us", 1), (1_999, "ns", 1), (-1, "ns", -1), (-1, "s", -1_000_000)],
)
def test_numbers_are_counted_from_1970_in_their_unit(number: int, unit: EpochUnit, expected: int) -> None:
    assert instants(from_epoch(array([number, None]), unit)).to_pylist() == [expected, None]
    assert instants(from_epoch(array([Decimal(number), None], EPOCH_NUMBER), unit)).to_pylist() == [expected, None]


def test_numbers_may_have_a_fraction() -> None:
    numbers = array([Decimal("1700000000.1234567"), Decimal("-0.0000001")], EPOCH_NUMBER)
    assert instants(from_epoch(numbers, "s")).to_pylist() == [1_700_000_000_123_456, -1]


@pytest.mark.parametrize("unit", ["s", "ms"])
def test_a_number_beyond_64_bits_of_microseconds_is_an_error(unit: EpochUnit) -> None:
    with pytest.raises(pa.ArrowInvalid):
        from_epoch(array([2**62]), unit)
    with pytest.raises(pa.ArrowInvalid):
        from_epoch(array([Decimal(2**62)], EPOCH_NUMBER), unit)


@pytest.mark.parametrize("number", [-62_135_596_800_001, 253_402_300_800_000])
def test_a_number_outside_of_the_years_of_a_datetime_is_an_error(number: int) -> None:
    inside = number + (1 if number < 0 else -1)
    assert from_epoch(array([inside]), "ms").to_pylist()[0].year in (1, 9999)
    with pytest.raises(pa.ArrowInvalid, match="outside of the years 1 to 9999"):
        from_epoch(array([None, number]), "ms")
    with pytest.raises(pa.ArrowInvalid, match="outside of the years 1 to 9999"):
        from_epoch(array([None, Decimal(number)], EPOCH_NUMBER), "ms")


@given(st.lists(st.none() | st.timedeltas(timedelta(days=-100_000), timedelta(days=100_000))))
def test_a_duration_survives_its_text_form(durations: list[timedelta | None]) -> None:
    column = array(durations, DURATION)
    assert duration_from_iso(duration_to_iso(column)).equals(column)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("P1DT2H3M4.5S", timedelta(days=1, hours=2, minutes=3, seconds=4.5)),
        ("-PT1S", timedelta(seconds=-1)),
        ("P2D", timedelta(days=2)),
    ],
)
def test_durations_in_text_are_read(text: str, expected: timedelta) -> None:
    assert duration_from_iso(array([text, None])).to_pylist() == [expected, None]


@pytest.mark.parametrize("text", ["", "P", "PT", "1.5", "P1Y", "P1DT", "PT1.S", "T1S"])
def test_other_text_is_no_duration(text: str) -> None:
    with pytest.raises(pa.ArrowInvalid):
        duration_from_iso(array([text]))


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (array([1], pa.timestamp("s")), 1_000_000),
        (array([1], pa.timestamp("ms", "Europe/Berlin")), 1_000),
        (array([-1], pa.timestamp("ns", "UTC")), -1),
        (array([1_999], pa.timestamp("ns")), 1),
        (array([date(1970, 1, 2)]), 86_400_000_000),
        (array([datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1)))], MOMENT), 0),
    ],
)
def test_times_of_every_unit_become_microseconds(column: Any, expected: int) -> None:
    assert moments(column).type == MOMENT
    assert instants(column).to_pylist() == [expected]
    assert extent(column) == (expected, expected)


def test_the_extent_of_times_skips_nulls() -> None:
    assert extent(array([None, 3, 1, None], pa.int64())) == (1, 3)
    assert extent(array([None], MOMENT)) is None
    assert extent(array([9, None, 3, 1], pa.int64()).cast(MOMENT).slice(2)) == (1, 3)
