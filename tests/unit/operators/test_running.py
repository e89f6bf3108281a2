"""Running aggregates equal those of DuckDB, Python and whole groups, however rows are cut, at any parallelism."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clonos_py.model.aggregates import Aggregate
from clonos_py.operators.aggregation import Partials
from clonos_py.operators.running import RunningAggregate
from tests.unit.operators.scripted import Instances, compacted_early, opened, schema, stored

DATABASE = duckdb.connect(config={"threads": 1})
INPUT = schema(
    ("id", pa.int64()), ("key", pa.string()), ("whole", pa.int64()), ("text", pa.string()),
    ("cents", pa.decimal128(9, 2)), ("real", pa.float64()),
)  # fmt: skip
OF_INTS = (
    Aggregate("count", None, "n", pa.int64()),
    Aggregate("count", "whole", "wholes", pa.int64()),
    Aggregate("sum", "whole", "total", pa.int64()),
    Aggregate("min", "whole", "least", pa.int64()),
    Aggregate("max", "text", "last_text", pa.string()),
    Aggregate("mean", "whole", "mean", pa.float64()),
    Aggregate("first", "text", "first", pa.string()),
    Aggregate("last", "text", "last", pa.string()),
    Aggregate("sum", "cents", "money", pa.decimal128(38, 2)),
)
SHARES = (0.0, 0.5, 0.9)
OF_VALUES = (
    Aggregate("var", "whole", "variance", pa.float64(), option=1),
    Aggregate("std", "cents", "deviation", pa.float64(), option=0),
    Aggregate("var", "real", "of_reals", pa.float64(), option=0),
    *(Aggregate("approx_quantile", "real", f"share_{share}", pa.float64(), option=share) for share in SHARES),
    Aggregate("approx_count_distinct", "text", "texts", pa.int64()),
    Aggregate("approx_count_distinct", "whole", "different", pa.int64()),
    Aggregate("count", None, "n", pa.int64()),
)
OF_FLOATS = (Aggregate("sum", "real", "total", pa.float64()), Aggregate("mean", "real", "mean", pa.float64()))
Row = tuple[str | None, int | None, str | None, int | None, float | None]
ROWS = st.tuples(
    st.sampled_from(["a", "b", None]),
    st.one_of(st.none(), st.integers(-9, 9)),
    st.sampled_from(["x", "y", None]),
    st.one_of(st.none(), st.integers(-999, 999)),
    st.one_of(st.none(), st.sampled_from([0.1, 0.2, 0.7, 1e16, -1e16, math.nan])),
)
BATCHES = st.lists(st.lists(ROWS, max_size=9), max_size=6)
RESTARTS = st.dictionaries(st.integers(0, 5), st.integers(1, 3), max_size=2)


@pytest.fixture(autouse=True, scope="module")
def _state_is_compacted_early() -> Iterator[None]:
    with compacted_early():
        yield


def table(rows: Sequence[Row], first: int = 0) -> pa.RecordBatch:
    """``rows``, numbered from ``first`` on."""
    values = [
        {"id": number, "key": key, "whole": whole, "text": text, "cents": cents and Decimal(cents) / 100, "real": real}
        for number, (key, whole, text, cents, real) in enumerate(rows, first)
    ]
    return pa.RecordBatch.from_pylist(values, schema=INPUT)


def result(aggregates: tuple[Aggregate, ...]) -> pa.Schema:
    return schema(("id", pa.int64()), ("key", pa.string()), *((found.name, found.type) for found in aggregates))


def ran(batches: list[list[Row]], aggregates: tuple[Aggregate, ...], restarts: dict[int, int]) -> list[dict[str, Any]]:
    """The results in the order of the rows, with the operator restarted before batches at another parallelism."""
    instances = Instances(lambda: RunningAggregate(("key",), aggregates, result(aggregates)))
    found: list[dict[str, Any]] = []
    for number, rows in enumerate(batches):
        if number in restarts:
            found += instances.emitted()
            instances.go_on_as(restarts[number])
        instances.on_rows(table(rows, sum(map(len, batches[:number]))), "key")
    return sorted(found + instances.emitted(), key=lambda row: row["id"])


@settings(max_examples=60)
@given(BATCHES, RESTARTS)
def test_exact_aggregates_equal_duckdb(batches: list[list[Row]], restarts: dict[int, int]) -> None:
    given_rows = pa.Table.from_batches([table(list(itertools.chain(*batches)))])
    DATABASE.register("given_rows", given_rows)
    asked = """
        SELECT id, key, count(*) OVER w, count(whole) OVER w, sum(whole) OVER w, min(whole) OVER w, max(text) OVER w,
        avg(whole) OVER w, first_value(text IGNORE NULLS) OVER w, last_value(text IGNORE NULLS) OVER w,
        sum(cents) OVER w FROM given_rows
        WINDOW w AS (PARTITION BY key ORDER BY id ROWS UNBOUNDED PRECEDING) ORDER BY id
    """
    assert [tuple(row.values()) for row in ran(batches, OF_INTS, restarts)] == DATABASE.execute(asked).fetchall()


@settings(max_examples=60)
@given(BATCHES, RESTARTS)
def test_floats_are_added_in_the_order_of_rows(batches: list[list[Row]], restarts: dict[int, int]) -> None:
    sums: dict[str | None, tuple[float | None, int]] = {}
    expected = []
    for key, *_, real in itertools.chain(*batches):
        total, count = sums.get(key, (None, 0))
        if real is not None:
            total, count = real if total is None else total + real, count + 1
        sums[key] = (total, count)
        expected.append((total, None if total is None else total / count))
    found = [(row["total"], row["mean"]) for row in ran(batches, OF_FLOATS, restarts)]
    assert repr(found) == repr(expected)


@settings(max_examples=60)
@given(BATCHES, RESTARTS)
def test_sketches_and_moments_are_those_of_the_rows_so_far(batches: list[list[Row]], restarts: dict[int, int]) -> None:
    rows = list(itertools.chain(*batches))
    found = ran(batches, OF_VALUES, restarts)
    assert repr(found) == repr(ran([rows], OF_VALUES, {}))
    partials = Partials(("key",), OF_VALUES)
    for row in {row["key"]: row for row in found}.values():
        of_key = table([before for before in rows if before[0] == row["key"]])
        (whole,) = partials.finish(partials.combine_by_key(of_key), result(OF_VALUES).remove(0), {}).to_pylist()
        for name, value in whole.items():
            near = name in ("variance", "deviation", "of_reals") and value is not None
            assert row[name] == pytest.approx(value, 1e-6, 1e-9, nan_ok=True) if near else str(row[name]) == str(value)


@pytest.mark.parametrize("first", [0.0, 1e9, -1e9])
def test_variances_keep_the_digits_of_values_far_from_0(first: float) -> None:
    values = [first, *(1e9 + number / 7 for number in range(40))]
    batches: list[list[Row]] = [[("a", None, None, None, value)] for value in values]
    found = [row["of_reals"] for row in ran(batches, OF_VALUES, {})]
    assert found == pytest.approx([statistics.pvariance(values[: number + 1]) for number in range(41)], rel=1e-7)
    assert [row["of_reals"] for row in ran([[("a", None, None, None, 0.1)] * 5], OF_VALUES, {})] == [0.0] * 5


def test_sketches_of_many_values_are_those_of_the_rows_so_far() -> None:
    rows: list[Row] = [("ab"[number % 3 % 2], number * number, None, None, number / 7) for number in range(3_000)]
    found = ran([rows[:1_000], rows[1_000:1_001], rows[1_001:]], OF_VALUES, {})
    partials = Partials(("key",), OF_VALUES)
    for number in (0, 1, 999, 1_000, 1_001, 2_999):
        whole = partials.combine_by_key(table([row for row in rows[: number + 1] if row[0] == found[number]["key"]]))
        names = [f"share_{share}" for share in SHARES] + ["different"]
        expected = partials.finish(whole, pa.schema([result(OF_VALUES).field(name) for name in names]), {})
        assert expected.to_pylist() == [{name: found[number][name] for name in names}]


@pytest.mark.parametrize("aggregates", [OF_INTS, OF_VALUES])
def test_the_state_is_one_row_per_key(aggregates: tuple[Aggregate, ...]) -> None:
    operator = RunningAggregate(("key",), aggregates, result(aggregates))
    opened(operator)
    for _ in range(5):
        operator.on_rows(table([("a", 1, "x", 1, 1.0)] * 9 + [("b", 1, "x", 1, 1.0)]), 0)
    assert operator._known.live_row_count == 2
    (chunk, *_) = stored(operator.snapshot()).tables["rows"]
    assert chunk.rows.schema == operator.tables([INPUT])["rows"]
