"""Times in rows: which Python values fit which columns, and how they are read back."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from typing import Annotated, Any

import pyarrow as pa
import pytest

from clonos_py import Epoch, GraphError, Iso8601, Record
from clonos_py.model.errors import UserCodeError
from clonos_py.model.record import record_type
from clonos_py.model.record_codec import FieldError, decode, encode
from clonos_py.model.time_formats import epoch_unit

NOON = datetime(2026, 1, 31, 12, 0, 0, 5, tzinfo=UTC)


class Timed(Record):
    at: datetime
    day: date
    took: timedelta
    seen: list[datetime]
    until: datetime | None = None


class Written(Record):
    at: Annotated[datetime, Epoch("ms")]
    until: Annotated[datetime, Epoch("s")] | None
    text: Annotated[datetime, Iso8601()]


class Odd(Record):
    n: Annotated[int, Epoch("ms")]


class Twice(Record):
    at: Annotated[datetime, Epoch("ms"), Iso8601()]


ROW = Timed(NOON, date(2026, 1, 31), timedelta(milliseconds=-5), [NOON])


def test_times_have_columns_of_their_own() -> None:
    schema = Timed.schema()
    assert schema.field("at") == pa.field("at", pa.timestamp("us", "UTC"), nullable=False)
    assert schema.field("day").type == pa.date32()
    assert schema.field("took").type == pa.duration("us")
    assert schema.field("until").nullable


def test_rows_with_times_survive_columns() -> None:
    rows = [ROW, Timed(NOON, date(1, 1, 1), timedelta(days=9_999), [], NOON)]
    assert next(decode(encode(rows, Timed.schema()), Timed)) == rows
    (row,) = next(decode(encode([ROW], Timed.schema()), record_type(Timed.schema())))
    assert (row.at, row.day, row.took, row.seen) == (ROW.at, ROW.day, ROW.took, ROW.seen)  # type: ignore[attr-defined]
    assert row.at.tzinfo is UTC  # type: ignore[attr-defined]


def test_a_datetime_of_another_zone_is_the_same_moment() -> None:
    there = NOON.astimezone(timezone(timedelta(hours=-5)))
    assert next(decode(encode([{"at": there}], pa.schema([Timed.schema().field("at")])), At)) == [At(NOON)]


class At(Record):
    at: datetime


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"at": datetime(2026, 1, 31)},
            r"field 'at' is datetime.datetime\(2026, 1, 31, 0, 0\), which has no time zone",
        ),
        ({"until": datetime(2026, 1, 31)}, "field 'until' is .* which has no time zone: write datetime.now"),
        ({"seen": [datetime(2026, 1, 31)]}, r"field 'seen\[0\]' is .* which has no time zone"),
        ({"at": date(2026, 1, 31)}, "where a datetime of timestamp"),
        ({"at": 5}, "where a datetime of timestamp"),
        ({"day": NOON}, "where a date is declared"),
        ({"took": 5}, "where a timedelta is declared"),
    ],
)
def test_a_value_that_is_no_such_time_is_refused_by_name(change: dict[str, Any], message: str) -> None:
    values = {"at": NOON, "day": date(2026, 1, 1), "took": timedelta(), "seen": [], "until": None, **change}
    with pytest.raises(FieldError, match=message) as caught:
        encode([ROW, values], Timed.schema())
    assert caught.value.row == 1


@pytest.mark.parametrize("type_", [pa.timestamp("s"), pa.timestamp("ms", "Europe/Berlin"), pa.timestamp("ns", "UTC")])
def test_columns_of_every_unit_become_datetimes_in_rows(type_: pa.DataType) -> None:
    column: Any = pa.array([1_769_860_800, None], pa.timestamp("s")).cast(type_)
    rows = pa.record_batch({"at": column})
    assert next(decode(rows, Maybe)) == [Maybe(NOON.replace(microsecond=0)), Maybe(None)]


class Maybe(Record):
    at: datetime | None


def test_digits_below_a_microsecond_are_cut_off() -> None:
    rows = pa.record_batch({"at": pa.array([-1, 1_999], pa.timestamp("ns", "UTC"))})
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    micro = timedelta(microseconds=1)
    assert next(decode(rows, Maybe)) == [Maybe(epoch - micro), Maybe(epoch + micro)]


def test_a_number_that_no_datetime_can_hold_is_an_error_that_mentions_the_unit() -> None:
    rows = pa.record_batch({"at": pa.array([1_700_000_000_000_000_000], pa.timestamp("us", "UTC"))})
    with pytest.raises(UserCodeError, match=r"1700000000000000000 microseconds since 1970 are no datetime.*the unit"):
        next(decode(rows, Maybe))


def test_the_format_of_a_column_belongs_to_its_field_and_not_to_its_type() -> None:
    schema = Written.schema()
    assert [epoch_unit(field) for field in schema] == ["ms", "s", None]
    assert {field.type for field in schema} == {pa.timestamp("us", "UTC")}
    assert schema.field("until").nullable


def test_a_format_without_effect_is_refused() -> None:
    with pytest.raises(GraphError, match=r"Odd.n: Epoch\(unit='ms'\) is for datetime; the column is int64"):
        Odd.schema()
    with pytest.raises(GraphError, match="written in one way"):
        Twice.schema()
    with pytest.raises(GraphError, match="choose one of s, ms, us, ns"):
        Epoch("minutes")  # type: ignore[arg-type]
