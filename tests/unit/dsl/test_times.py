"""Times in jobs: expressions of datetimes, where event time can be assigned, and the types of window bounds."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from clonos_py import (
    AsyncContext,
    GraphError,
    Instant,
    Job,
    Record,
    Stream,
    UserCodeError,
    as_of,
    col,
    count,
    lit,
    session,
    tumbling,
    when,
)
from clonos_py.connectors import MemorySource
from clonos_py.dsl.expressions import Expr

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
MOMENT, DURATION = pa.timestamp("us", "UTC"), pa.duration("us")
TIMES: Any = pa.array([NOON, None], MOMENT)
ROWS = pa.record_batch(
    {
        "us": TIMES,
        "ns": TIMES.cast(pa.timestamp("ns", "UTC")),
        "local": TIMES.cast(pa.timestamp("ms")),
        "instant": TIMES.cast(pa.int64()),
        "took": pa.array([MINUTE, None], DURATION),
        "day": pa.array([date(2026, 1, 31), None], pa.date32()),
        "number": pa.array([3, None], pa.int64()),
        "text": pa.array(["31/01/2026 12:00", None]),
        "iso": pa.array(["2026-01-31T12:00:00Z", None]),
        "zoned": pa.array(["31.01.2026 14:00:00.25 +0200", None]),
    }
)


def first(expr: Expr) -> tuple[Any, pa.DataType]:
    """The value of the first row; the second row is null everywhere, and so is its result."""
    compiled = pickle.loads(pickle.dumps(expr.node.compile(ROWS.schema, "op")))
    result = compiled(ROWS)
    assert result.type == compiled.type == expr.node.field("x", ROWS.schema).type
    assert not result[1].is_valid
    return result[0].as_py(), result.type


@pytest.mark.parametrize("name", ["us", "ns", "local", "instant"])
def test_every_column_of_times_is_compared_with_datetimes(name: str) -> None:
    assert first(col(name) == NOON) == (True, pa.bool_())
    assert first(col(name) > NOON - MINUTE) == (True, pa.bool_())
    assert first(col(name) < NOON) == (False, pa.bool_())
    assert first(col(name).between(NOON, NOON)) == (True, pa.bool_())
    assert first(col(name).is_in([NOON - MINUTE, NOON])) == (True, pa.bool_())
    assert first(col(name) >= date(2026, 1, 31)) == (True, pa.bool_())


@pytest.mark.parametrize("name", ["us", "ns", "local", "instant"])
def test_every_column_of_times_can_be_formatted_and_cast(name: str) -> None:
    assert first(col(name).strftime("%d.%m. %H:%M:%S")) == ("31.01. 12:00:00", pa.string())
    assert first(col(name).hour()) == (12, pa.int64())
    assert first(col(name).cast(Instant)) == (int(NOON.timestamp()) * 1_000_000, pa.int64())
    assert first(col(name).cast(datetime)) == (NOON, MOMENT)
    assert first((col(name) + MINUTE).cast(datetime)) == (NOON + MINUTE, MOMENT)


def test_a_datetime_in_a_branch_gets_the_unit_of_the_column_beside_it() -> None:
    for name in ("us", "ns", "local", "instant"):
        filled = when(col("number") == 3).then(NOON).otherwise(col(name)).node.bind(ROWS.schema)
        assert filled.type == ROWS.schema.field(name).type


@pytest.mark.parametrize(
    ("expr", "expected", "type_"),
    [
        (col("us") + MINUTE, NOON + MINUTE, MOMENT),
        (MINUTE + col("us"), NOON + MINUTE, MOMENT),
        (col("us") - col("took"), NOON - MINUTE, MOMENT),
        (col("us") - NOON, timedelta(), DURATION),
        (col("us") - (col("us") - MINUTE), MINUTE, DURATION),
        (col("took") * 2, 2 * MINUTE, DURATION),
        (col("took") / timedelta(seconds=1), 60.0, pa.float64()),
        (-col("took"), -MINUTE, DURATION),
        ((-col("took")).abs() > timedelta(seconds=59), True, pa.bool_()),
        (col("day") == date(2026, 1, 31), True, pa.bool_()),
        (col("day") + timedelta(hours=30), date(2026, 2, 1), pa.date32()),
        (col("day") - timedelta(hours=1), date(2026, 1, 30), pa.date32()),
        (col("day") - date(2026, 1, 1), timedelta(days=30), DURATION),
        (col("day") < NOON, True, pa.bool_()),
        (col("day").strftime("%m"), "01", pa.string()),
        (col("us").cast(date), date(2026, 1, 31), pa.date32()),
        (col("us").cast(str), "2026-01-31T12:00:00Z", pa.string()),
        (col("iso").cast(datetime), NOON, MOMENT),
        (col("text").strptime("%d/%m/%Y %H:%M"), NOON, MOMENT),
        (col("zoned").strptime("%d.%m.%Y %H:%M:%S.%f %z"), NOON + timedelta(milliseconds=250), MOMENT),
    ],
)
def test_arithmetic_with_times_has_the_expected_values_and_types(
    expr: Expr, expected: object, type_: pa.DataType
) -> None:
    assert first(expr) == (expected, type_)


def test_a_literal_time_is_a_column_of_times() -> None:
    assert lit(NOON).node.bind(ROWS.schema).type == MOMENT
    assert lit(MINUTE).node.bind(ROWS.schema).type == DURATION
    assert lit(date(2026, 1, 31)).node.bind(ROWS.schema).type == pa.date32()


@pytest.mark.parametrize(
    ("expr", "message"),
    [
        (col("us") > 5, "us is timestamp"),
        (col("us") > "2026", "us is timestamp"),
        (col("us") > datetime(2026, 1, 1), "has no time zone"),
        (col("us") - col("local"), "us is timestamp"),
        (col("number").strptime("%Y"), "number is int64"),
        (col("took").hour(), "took is duration"),
    ],
)
def test_impossible_operations_with_times_are_refused(expr: Expr, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        expr.node.bind(ROWS.schema)


def test_text_that_is_no_time_is_an_error_that_quotes_it_or_null() -> None:
    compiled = col("text").strptime("%Y-%m-%d").node.compile(ROWS.schema, "read")
    with pytest.raises(UserCodeError, match=r"'read'.*'31/01/2026 12:00' is not a time of the form '%Y-%m-%d', at row"):
        compiled(ROWS)
    lenient = col("text").strptime("%Y-%m-%d", strict=False).node
    assert lenient.compile(ROWS.schema, "read")(ROWS).to_pylist() == [None, None]
    assert lenient.field("at", pa.schema([pa.field("text", pa.string(), nullable=False)])).nullable


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("31/01/2026", "%d/%m/%Y"),
        ("2026-01", "%Y-%m"),
        ("2026", "%Y"),
        ("2026-031", "%Y-%j"),
        ("Jan 31 26, 01 PM", "%b %d %y, %I %p"),
        ("Saturday, 31 January 2026 13", "%A, %d %B %Y %H"),
        ("100% 26-01-31", "100%% %y-%m-%d"),
        ("2026-01-31 13:05:59.25", "%Y-%m-%d %H:%M:%S.%f"),
        ("2026-01-31 +0130", "%Y-%m-%d %z"),
    ],
)
def test_a_pattern_has_the_same_meaning_as_in_python(text: str, pattern: str) -> None:
    expected = datetime.strptime(text, pattern)
    expected = expected.replace(tzinfo=UTC) if expected.tzinfo is None else expected
    rows = pa.RecordBatch.from_pydict({"text": [text, None]})
    assert col("text").strptime(pattern).node.compile(rows.schema, "read")(rows).to_pylist() == [expected, None]


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("yyyy", "it takes a pattern"),
        ("%H:%M", "it has no year"),
        ("%d-%m-%Y %Q", "%Q is not among its directives, which are %Y"),
        ("%Y %", "% is not among its directives"),
        ("%Y-%m-%d %H:%M:%S,%f", "%f is read behind a point only"),
        ("%Y-%m-%d %I:%M", "%I needs %p"),
    ],
)
def test_an_impossible_pattern_is_refused_when_it_is_written(pattern: str, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        col("text").strptime(pattern)


# ---- event time


class Line(Record):
    id: int
    text: str
    at: datetime
    old: Instant


def lines(job: Job | None = None, **options: Any) -> Stream[Line]:
    return (job or Job("times")).source(MemorySource([], schema=Line), **options)


async def asked(line: Line, ctx: AsyncContext) -> Line:
    return line


def joined(timed: Stream[Any]) -> Stream[Any]:
    return timed.join(timed.select("id", then="at"), on="id", within=as_of())


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda s: s.with_event_time("when"), "no column 'when'; there are id, text, at, old"),
        (lambda s: s.with_event_time("text"), "datetime first, such as .with_columns(text=col('text').strptime"),
        (lambda s: s.with_event_time("at", delay="-1s"), "neither can be negative"),
        (lambda s: s.with_event_time("at", idle=0), "neither can be negative, nor idle 0"),
        (lambda s: s.key_by("id").with_event_time("at"), "is keyed: write .with_event_time('at') before key_by"),
        (
            lambda s: s.with_event_time("at").window(tumbling("1s")).aggregate(n=count()).with_event_time("window_end"),
            "the stream comes from the aggregate at",
        ),
        (lambda s: s.key_by("id").aggregate(n=count()).changes().with_event_time("n"), "comes from the aggregate"),
        (
            lambda s: joined(s.with_event_time("at")).with_event_time("at"),
            "the stream comes from the join at",
        ),
        (lambda s: s.map(asked).with_event_time("at"), "whose answers come later; write it before"),
        (lambda s: s.rebalance().select("at").with_event_time("at"), "comes from the rebalance at"),
        (lambda s: s.iterate(lambda r: (r, r.with_event_time("at"))), "it is in the loop at"),
    ],
)  # fmt: skip
def test_an_impossible_assignment_of_event_time_is_refused(write: Callable[[Stream[Any]], Any], message: str) -> None:
    with pytest.raises(GraphError) as caught:
        write(lines())
    assert message in str(caught.value)
    assert "tests/unit/dsl/test_times.py:" in str(caught.value)


def test_assigned_event_time_follows_its_column() -> None:
    named = lines().with_event_time("at").select("id", then="at")
    windows = named.key_by("id").window(session("1s")).aggregate(n=count())
    assert windows.schema.field("window_end").type == MOMENT
    with pytest.raises(GraphError, match=r"or with \.with_event_time"):
        lines().select("id").window(tumbling("1s")).aggregate(n=count())


class Stamped(Record):
    window_end: Instant
    n: int


class Bounded(Record):
    window_end: datetime
    n: int


@pytest.mark.parametrize("column", ["at", "old"])
def test_bounds_of_windows_have_the_declared_type_or_that_of_the_event_time(column: str) -> None:
    window = lines(event_time=column).window(tumbling("1s"))
    assert window.aggregate(Stamped, n=count()).schema.field("window_end").type == pa.int64()
    assert window.aggregate(Bounded, n=count()).schema.field("window_end").type == MOMENT
    assert window.aggregate(n=count()).schema.field("window_start").type == (MOMENT if column == "at" else pa.int64())


def test_a_function_gets_datetimes_from_columns_of_other_units() -> None:
    stream = Job("units").source(MemorySource(pa.table({"at": ROWS.column("ns").drop_null()})))
    assert stream.map(doubled).schema == At.schema()


class At(Record):
    at: datetime | None


def doubled(row: At) -> At:
    return row
