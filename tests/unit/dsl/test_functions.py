"""Functions of times, numbers, lists, structs and JSON give what Python, its zones and DuckDB give."""

from __future__ import annotations

import math
import pickle
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos_py.columns.times import MOMENT
from clonos_py.dsl.expressions import Expr, coalesce, col, greatest, least, lit
from clonos_py.model.errors import GraphError

ZONES = ["UTC", "Europe/Berlin", "Asia/Kolkata", "America/Sao_Paulo", "Australia/Lord_Howe", "Asia/Kathmandu"]
zones = st.sampled_from(ZONES)
times = st.datetimes(datetime(1990, 1, 1), datetime(2024, 12, 31)).map(lambda at: at.replace(tzinfo=UTC))
CLOCK_CHANGES = [
    datetime(2017, 10, 15, 3, tzinfo=UTC),  # midnight in São Paulo, which does not exist there
    datetime(2018, 2, 18, 1, 30, tzinfo=UTC),
    datetime(2024, 3, 31, 1, tzinfo=UTC),
    datetime(2024, 10, 27, 0, 30, tzinfo=UTC),
    datetime(2024, 10, 27, 1, 30, tzinfo=UTC),
]


def values(expr: Expr, rows: pa.RecordBatch) -> list[Any]:
    compiled = pickle.loads(pickle.dumps(expr.node.compile(rows.schema, "op")))
    result = compiled(rows)
    assert result.type == compiled.type == expr.node.field("x", rows.schema).type
    found: list[Any] = result.to_pylist()
    return found


def at_column(moments: list[datetime | None], kind: Any = MOMENT) -> pa.RecordBatch:
    return pa.record_batch({"at": pa.array(moments, MOMENT).cast(kind)})


PARTS = {
    "year": lambda at: at.year,
    "quarter": lambda at: (at.month + 2) // 3,
    "month": lambda at: at.month,
    "week": lambda at: at.isocalendar().week,
    "day": lambda at: at.day,
    "weekday": lambda at: at.isoweekday(),
    "day_of_year": lambda at: at.timetuple().tm_yday,
    "hour": lambda at: at.hour,
    "minute": lambda at: at.minute,
    "second": lambda at: at.second,
}


@pytest.mark.parametrize("part", PARTS)
@given(st.lists(st.none() | times | st.sampled_from(CLOCK_CHANGES), max_size=5), zones, st.booleans())
def test_parts_of_times_are_those_of_a_clock_in_the_zone(
    part: str, moments: list[datetime | None], zone: str, instant: bool
) -> None:
    rows = at_column(moments, pa.int64() if instant else MOMENT)
    expected = [None if at is None else PARTS[part](at.astimezone(ZoneInfo(zone))) for at in moments]
    assert values(getattr(col("at"), part)(zone=zone), rows) == expected


def begin_of(at: datetime, unit: str) -> datetime:
    """The beginning of a unit of the calendar on the clock that shows ``at``."""
    midnight = at.replace(hour=0, minute=0, second=0, microsecond=0, fold=0)
    match unit:
        case "week":
            return midnight - timedelta(days=midnight.weekday())
        case "month":
            return midnight.replace(day=1)
        case "quarter":
            return midnight.replace(month=(at.month - 1) // 3 * 3 + 1, day=1)
        case "year":
            return midnight.replace(month=1, day=1)
    return midnight


def of_clock(shown: datetime, zone: str) -> datetime:
    found = shown.replace(tzinfo=ZoneInfo(zone)).astimezone(UTC)
    if found.astimezone(ZoneInfo(zone)).replace(tzinfo=None) != shown.replace(tzinfo=None):
        return of_clock(shown + timedelta(hours=1), zone)
    return found


@given(
    st.lists(times | st.sampled_from(CLOCK_CHANGES), max_size=5),
    zones,
    st.sampled_from(["day", "week", "month", "quarter", "year"]),
)
def test_times_are_rounded_down_to_where_a_unit_begins_in_the_zone(
    moments: list[datetime], zone: str, unit: str
) -> None:
    expected = [of_clock(begin_of(at.astimezone(ZoneInfo(zone)).replace(tzinfo=None), unit), zone) for at in moments]
    assert values(col("at").truncate(unit, zone=zone), at_column([*moments])) == expected


CLOCK = {"hour": 3_600, "minute": 60, "second": 1, "15m": 900, "6h": 21_600, "250ms": 0.25, "1d": 86_400}


@pytest.mark.parametrize("every", [name for name in CLOCK if name != "1d"])
@given(st.lists(times | st.sampled_from(CLOCK_CHANGES), max_size=5), zones)
def test_times_are_rounded_down_on_the_clock(every: str, moments: list[datetime], zone: str) -> None:
    expected = []
    for at in moments:
        shown = at.astimezone(ZoneInfo(zone)).replace(tzinfo=None)
        past = (shown - datetime(1970, 1, 1)) % timedelta(seconds=CLOCK[every])
        expected.append(at - past)
    assert values(col("at").truncate(every, zone=zone), at_column([*moments])) == expected


def test_the_type_of_times_stays() -> None:
    at = datetime(2026, 5, 14, 15, 9, 26, tzinfo=UTC)
    rows = pa.record_batch({"instant": pa.array([at], MOMENT).cast(pa.int64()), "day": pa.array([at.date()])})
    assert values(col("instant").truncate("month").cast(datetime), rows) == [datetime(2026, 5, 1, tzinfo=UTC)]
    assert values(col("day").truncate("month"), rows) == [date(2026, 5, 1)]
    assert values(col("day").weekday(), rows) == [4]
    assert values(lit(at).truncate("1d").cast(datetime) == col("day").cast(datetime), rows) == [True]


@given(st.lists(times, max_size=4), zones)
def test_text_in_a_zone_is_written_and_read(moments: list[datetime], zone: str) -> None:
    pattern = "%Y-%m-%d %H:%M:%S"
    rows = at_column([*moments])
    written = values(col("at").strftime(pattern, zone=zone), rows)
    assert written == [at.astimezone(ZoneInfo(zone)).strftime(pattern) for at in moments]
    texts = pa.record_batch({"text": pa.array(written, pa.string())})
    expected = [of_clock(datetime.strptime(text, pattern), zone) for text in written]
    assert values(col("text").strptime(pattern, zone=zone), texts) == expected


def test_a_clock_that_is_set_forward_does_not_show_an_hour() -> None:
    rows = pa.record_batch({"text": ["2024-03-31 02:30", "2024-10-27 02:30"]})
    read = col("text").strptime("%Y-%m-%d %H:%M", zone="Europe/Berlin", strict=False)
    assert values(read, rows) == [None, datetime(2024, 10, 27, 0, 30, tzinfo=UTC)]
    strict = col("text").strptime("%Y-%m-%d %H:%M", zone="Europe/Berlin").node.compile(rows.schema, "op")
    with pytest.raises(pa.ArrowInvalid, match="'2024-03-31 02:30' is not a time of the form"):
        strict.evaluate(rows)


NUMBERS = pa.record_batch(
    {
        "i": pa.array([4, -7, None, 0, 10], pa.int64()),
        "j": pa.array([2, None, 3, -1, 10], pa.int32()),
        "f": pa.array([2.25, -0.5, None, 100.0, 1e-3], pa.float64()),
        "text": pa.array(["a", None, "c", "", "é"]),
    }
)


@pytest.mark.parametrize(
    ("expr", "sql"),
    [
        (col("i").sign(), "sign(i)"),
        (col("f").sign(), "sign(f)"),
        (col("f").floor(), "floor(f)"),
        (col("f").ceil(), "ceil(f)"),
        (col("i").floor(), "i"),
        (col("f").abs().sqrt(), "sqrt(abs(f))"),
        (col("f").exp(), "exp(f)"),
        (col("f").abs().log(), "ln(abs(f))"),
        (col("f").abs().log(10), "log10(abs(f))"),
        (col("f").abs().log(2), "log2(abs(f))"),
        (col("f") ** 2, "pow(f, 2)"),
        (col("i") ** 2, "pow(i, 2)::BIGINT"),
        (2 ** col("j").abs(), "pow(2, abs(j))::BIGINT"),
        (least(col("i"), col("j")), "least(i, j)"),
        (greatest(col("i"), col("j"), 3), "greatest(i, j, 3)"),
        (greatest(col("f"), col("i")), "greatest(f, i)"),
        (coalesce(col("i"), col("j").cast(int), 0), "coalesce(i, j, 0)"),
        (coalesce(col("text"), "none"), "coalesce(text, 'none')"),
        (col("i").clip(-1, 5), "CASE WHEN i IS NOT NULL THEN least(greatest(i, -1), 5) END"),
        (col("i").null_if(0), "nullif(i, 0)"),
        (col("text").null_if(""), "nullif(text, '')"),
    ],
    ids=str,
)
def test_functions_of_numbers_equal_duckdb(expr: Expr, sql: str) -> None:
    with duckdb.connect() as database:
        database.register("t", NUMBERS)
        expected = [row[0] for row in database.execute(f"SELECT {sql} FROM t").fetchall()]
    found = values(expr, NUMBERS)
    assert [value is None for value in found] == [value is None for value in expected]
    for ours, theirs in zip(found, expected, strict=True):
        assert ours == theirs or ours == pytest.approx(theirs, rel=1e-14)


def test_what_has_no_root_or_logarithm_is_nan_and_no_error() -> None:
    rows = pa.record_batch({"x": [-1.0, 0.0]})
    root, zero = values(col("x").sqrt(), rows)
    assert math.isnan(root)
    assert zero == 0
    log, infinite = values(col("x").log(), rows)
    assert math.isnan(log)
    assert infinite == -math.inf


def test_a_power_that_is_too_large_is_an_error() -> None:
    rows = pa.record_batch({"x": [10]})
    with pytest.raises(pa.ArrowInvalid, match="overflow"):
        (col("x") ** 30).node.compile(rows.schema, "op").evaluate(rows)


NESTED = pa.record_batch(
    {
        "tags": pa.array([["a", "b"], [], None, [None, "c"]], pa.list_(pa.string())),
        "user": pa.array([{"id": 1, "name": "x"}, None, {"id": None, "name": "y"}, {"id": 4, "name": None}]),
        "json": ['{"user": {"names": ["x", "y"]}, "n": 2}', "no JSON", None, '{"n": "two"}'],
    }
)


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (col("tags").list_length(), [2, 0, None, 2]),
        (col("tags").list_get(0), ["a", None, None, None]),
        (col("tags").list_get(1), ["b", None, None, "c"]),
        (col("tags").list_get(-1), ["b", None, None, "c"]),
        (col("tags").list_get(-2), ["a", None, None, None]),
        (col("tags").list_contains("c"), [False, False, None, True]),
        (col("user").field("id"), [1, None, None, 4]),
        (col("user").field("name").upper(), ["X", None, "Y", None]),
        (col("json").json_value("$.user.names[1]"), ["y", None, None, None]),
        (col("json").json_value("$.n"), ["2", None, None, "two"]),
        (col("json").json_value("$.user"), ['{"names":["x","y"]}', None, None, None]),
    ],
    ids=str,
)
@pytest.mark.parametrize("sliced", [False, True])
def test_functions_of_nested_values(expr: Expr, expected: list[Any], sliced: bool) -> None:
    rows = NESTED.slice(1) if sliced else NESTED
    assert values(expr, rows) == expected[1 if sliced else 0 :]


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: col("at").hour(zone="Berlin"), "hour(zone='Berlin'): 'Berlin' is no time zone: they have names such"),
        (lambda: col("at").hour(zone=2), "hour(zone=2): it takes the name of a time zone"),  # type: ignore[arg-type]
        (
            lambda: col("at").truncate("fortnight"),
            "truncate('fortnight'): it takes year, quarter, month, week, day, hou",
        ),
        (lambda: col("at").truncate("2d"), "truncate('2d'): it takes a duration that divides a day"),
        (lambda: col("at").truncate("0s"), "it takes a duration that divides a day"),
        (lambda: col("at").strftime("%H %z", zone="Asia/Kolkata"), "the pattern has a zone itself"),
        (lambda: col("x").log(1), "log(1): a base is a number above 0 other than 1"),
        (lambda: col("x").list_get("1"), "list_get('1'): it takes a whole number"),  # type: ignore[arg-type]
        (lambda: col("x").list_contains(None), "list_contains(None): it takes a plain value"),
        (coalesce, "coalesce(): it takes at least one value"),
        (lambda: least(col("x")), "least(...): it takes two values or more"),
    ],
)
def test_wrong_arguments_are_refused_where_they_are_written(make: Any, problem: str) -> None:
    with pytest.raises(GraphError) as refused:
        make()
    assert problem in str(refused.value)


@pytest.mark.parametrize(
    ("expr", "problem"),
    [
        (col("user").field("age"), "it has no field 'age'; there are id, name"),
        (col("tags").field("id"), "tags is list<item: string>, and there is no field for that"),
        (col("json").list_contains("x"), "json is string, and there is no list_contains for that"),
        (col("json").list_length(), "json is string, and there is no list_length for that"),
        (col("tags").json_value("$.x"), "and there is no json_value for that"),
        (col("json").json_value("$.["), "'$.[' is no JSON path: they are such as '$.user.names[0]'"),
        (col("tags").hour(), "and there is no hour for that"),
        (col("json").sqrt(), "json is string"),
    ],
    ids=str,
)
def test_columns_of_other_types_are_refused(expr: Expr, problem: str) -> None:
    with pytest.raises(GraphError) as refused:
        expr.node.bind(NESTED.schema)
    assert problem in str(refused.value)
