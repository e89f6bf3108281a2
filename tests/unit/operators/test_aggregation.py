"""Aggregates of every function and type, directly and through merged partial results."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos_py.columns.grouping import group
from clonos_py.columns.views import concat
from clonos_py.model.aggregates import Aggregate, UserAggregate
from clonos_py.model.errors import GraphError, UserCodeError
from clonos_py.model.hidden import hidden
from clonos_py.operators.aggregation import Partials

MONEY = pa.decimal128(18, 2)
SUM = pa.decimal128(38, 2)


def results(aggregates: list[Aggregate], batches: list[pa.RecordBatch]) -> list[dict[str, Any]]:
    """The results per key of column ``k`` when each batch is reduced, and the partial results are merged."""
    partials = Partials(("k",), aggregates)
    reduced = [partials.combine(b, group([b.column("k")], b.num_rows), {}) for b in batches]
    for partial, rows in zip(reduced, batches, strict=True):
        assert partial.schema.equals(pa.schema(partials.fields(rows.schema, [])))
    together = concat(reduced)
    merged = partials.merge(together, group([together.column("k")], together.num_rows))
    assert merged.schema.equals(together.schema)
    schema = pa.schema([merged.schema.field("k"), *(pa.field(a.name, a.type) for a in aggregates)])
    return partials.finish(merged, schema, {}).to_pylist()


def all_of(kind: pa.DataType, total: pa.DataType, mean: pa.DataType) -> list[Aggregate]:
    kinds = {"count": pa.int64(), "sum": total, "min": kind, "max": kind, "mean": mean}
    return [Aggregate(function, "v", function, type_) for function, type_ in kinds.items()]


def cut(kind: pa.DataType, rows: list[tuple[int, Any]]) -> list[pa.RecordBatch]:
    middle = len(rows) // 2
    parts = [rows[:middle], rows[middle:]]
    return [
        pa.record_batch({"k": pa.array([k for k, _ in part], pa.int64()), "v": pa.array([v for _, v in part], kind)})
        for part in parts
    ]


def values_by_key(rows: list[tuple[int, Any]]) -> dict[int, list[Any]]:
    groups: dict[int, list[Any]] = {}
    for key, value in rows:
        groups.setdefault(key, []).extend([] if value is None else [value])
    return groups


@pytest.mark.parametrize("kind", [pa.int8(), pa.int32(), pa.int64(), pa.uint16()], ids=str)
@given(rows=st.lists(st.tuples(st.integers(0, 3), st.one_of(st.none(), st.integers(0, 100)))))
def test_aggregates_of_integers_are_those_of_python(kind: pa.DataType, rows: list[tuple[int, int | None]]) -> None:
    found = {row["k"]: row for row in results(all_of(kind, pa.int64(), pa.float64()), cut(kind, rows))}
    assert found.keys() == values_by_key(rows).keys()
    for key, values in values_by_key(rows).items():
        total = sum(values) if values else None
        mean = sum(values) / len(values) if values else None
        expected = (len(values), total, min(values, default=None), max(values, default=None), mean)
        assert tuple(found[key].values())[1:] == expected


@given(st.lists(st.tuples(st.integers(0, 3), st.one_of(st.none(), st.integers(-100, 100)))))
def test_integer_means_and_distinct_counts_are_those_of_python(rows: list[tuple[int, int | None]]) -> None:
    aggregates = [Aggregate("mean", "v", "mean", pa.int64()), Aggregate("count_distinct", "v", "values", pa.int64())]
    found = {row["k"]: (row["mean"], row["values"]) for row in results(aggregates, cut(pa.int64(), rows))}
    assert found == {
        key: (int(sum(values) / len(values)) if values else None, len(set(values)))
        for key, values in values_by_key(rows).items()
    }


@given(st.lists(st.tuples(st.integers(0, 3), st.one_of(st.none(), st.decimals(-(10**15), 10**15, places=2)))))
def test_aggregates_of_money_are_exact(rows: list[tuple[int, Decimal | None]]) -> None:
    found = {row["k"]: row for row in results(all_of(MONEY, SUM, MONEY), cut(MONEY, rows))}
    for key, values in values_by_key(rows).items():
        total = sum(values) if values else None
        assert (found[key]["sum"], found[key]["count"]) == (total, len(values))
        assert (found[key]["min"], found[key]["max"]) == (min(values, default=None), max(values, default=None))
        assert (found[key]["mean"] is None) == (not values)
        if values:
            assert abs(found[key]["mean"] * len(values) - sum(values)) <= Decimal("0.005") * len(values)


def test_means_of_decimals_round_half_away_from_zero_at_any_size() -> None:
    for base in (Decimal(0), Decimal(10) ** 20):
        rows = [(1, base + Decimal("0.01")), (1, base), (2, -base), (2, -base - Decimal("0.01"))]
        kind = pa.decimal128(30, 2)
        found = results([Aggregate("mean", "v", "mean", kind)], cut(kind, rows))
        assert [row["mean"] for row in found] == [base + Decimal("0.01"), -base - Decimal("0.01")]


def test_means_are_right_at_the_least_integer() -> None:
    least = -(2**63)
    rows = [(1, least), (1, 0), (2, least), (3, least), (3, -1 - least), (3, 0)]
    whole = results([Aggregate("mean", "v", "mean", pa.int64())], cut(pa.int64(), rows))
    assert [row["mean"] for row in whole] == [least // 2, least, 0]
    cents = [(key, Decimal(value).scaleb(-2)) for key, value in rows]
    kind = pa.decimal128(21, 2)
    found = results([Aggregate("mean", "v", "mean", kind)], cut(kind, cents))
    assert [row["mean"] for row in found][:2] == [Decimal(least // 2).scaleb(-2), Decimal(least).scaleb(-2)]


def test_a_sum_of_decimals_is_right_or_refused() -> None:
    kind = pa.decimal128(38)
    total = [Aggregate("sum", "v", "sum", kind)]
    third = 33 * Decimal(10) ** 36
    rows = [(1, third), (1, third), (1, third), (2, -third), (2, -third), (2, -third), (2, None)]
    assert [row["sum"] for row in results(total, cut(kind, rows))] == [3 * third, -3 * third]
    with pytest.raises(UserCodeError, match="needs more than 38 digits: cast the column to float"):
        results(total, cut(kind, [*rows, (1, third)]))


@pytest.mark.parametrize("kind", [pa.int64(), pa.uint64()], ids=str)
def test_a_sum_of_integers_is_right_or_refused(kind: pa.DataType) -> None:
    total = [Aggregate("sum", "v", "total", pa.int64())]
    most = 2**63 - 1
    rows: list[tuple[int, int | None]] = [(1, most - 2), (2, None), (1, 2), (2, 7), (1, None), (2, most - 7)]
    assert [row["total"] for row in results(total, cut(kind, rows))] == [most, most]
    for apart in ([*rows, (1, 1)], [(1, 1), *rows], [(1, most), (1, 1), (2, 1), (2, 1)]):
        with pytest.raises(UserCodeError, match="sum 'total': a sum of integers needs more than 64 bits: cast"):
            results(total, cut(kind, apart))


def test_sums_of_integers_may_exceed_the_limits_within_a_batch() -> None:
    most = 2**63 - 1
    rows = [(1, most), (1, most), (1, -most), (1, -1), (2, -most), (2, -1), (2, -1), (2, 1)]
    batch = concat(cut(pa.int64(), rows))
    assert [row["n"] for row in results([Aggregate("sum", "v", "n", pa.int64())], [batch])] == [most - 1, -most - 1]


def test_means_of_integers_do_not_depend_on_the_size_of_the_sum() -> None:
    now_us = 1_800_000_000_000_000
    rows: list[tuple[int, int | None]] = [(1, now_us + number) for number in range(6_001)]
    rows += [(2, -(2**63)), (2, -(2**63)), (3, None), (4, -7), (4, 2)]
    mean, whole = Aggregate("mean", "v", "mean", pa.float64()), Aggregate("mean", "v", "whole", pa.int64())
    assert results([mean, whole], cut(pa.int64(), rows)) == [
        {"k": 1, "mean": float(now_us + 3_000), "whole": now_us + 3_000},
        {"k": 2, "mean": -(2.0**63), "whole": -(2**63)},
        {"k": 3, "mean": None, "whole": None},
        {"k": 4, "mean": -2.5, "whole": -2},
    ]


def test_floats_add_in_order_and_extremes_ignore_nan() -> None:
    rows = [(1, 0.5), (1, float("nan")), (1, -2.0), (2, float("nan")), (2, None), (3, None)]
    kinds = [Aggregate(f, "v", f, pa.float64()) for f in ("min", "max", "sum")]
    one, two, three = results(kinds, cut(pa.float64(), rows))
    assert (one["min"], one["max"], math.isnan(one["sum"])) == (-2.0, 0.5, True)
    assert math.isnan(two["min"])
    assert (three["min"], three["sum"]) == (None, None)


def test_text_times_and_booleans_have_extremes() -> None:
    for kind, values in ((pa.string(), ["b", "a"]), (pa.timestamp("us"), [7, 3]), (pa.bool_(), [True, False])):
        array = pa.array([*values, None], kind)
        rows = pa.record_batch({"k": [1, 1, 2], "v": array})
        found = results([Aggregate(f, "v", f, kind) for f in ("min", "max")], [rows, rows])
        assert found[0] == {"k": 1, "min": array[1].as_py(), "max": array[0].as_py()}
        assert found[1] == {"k": 2, "min": None, "max": None}


def test_keys_of_any_plain_type_are_grouped_and_come_out_unchanged() -> None:
    for keys in (
        ["a", None, "a"],
        [1.5, float("nan"), 1.5],
        [Decimal("1.5"), Decimal(2), Decimal("1.5")],
        [b"x", b"", b"x"],
    ):
        rows = pa.record_batch({"k": pa.array(keys), "v": [1, 2, 3]})
        found = results([Aggregate("sum", "v", "total", pa.int64())], [rows, rows])
        assert [row["total"] for row in found] == [8, 4]
        assert [repr(row["k"]) for row in found] == [repr(k) for k in pa.array(keys[:2]).to_pylist()]
    encoded = pa.record_batch({"k": pa.array(["a", "b", "a"]).dictionary_encode(), "v": [1, 2, 3]})
    assert results([Aggregate("sum", "v", "n", pa.int64())], [encoded]) == [{"k": "a", "n": 4}, {"k": "b", "n": 2}]


def test_distant_integer_keys_are_grouped() -> None:
    keys = [2**62, -(2**62), 0, 2**62]
    rows = pa.record_batch({"k": keys, "v": [1, 2, 3, 4]})
    found = results([Aggregate("sum", "v", "n", pa.int64())], [rows])
    assert {row["k"]: row["n"] for row in found} == {2**62: 5, -(2**62): 2, 0: 3}


def test_a_nested_key_is_refused() -> None:
    with pytest.raises(GraphError, match="list<item: int64>"):
        group([pa.array([[1]])], 1)


LAST_TWO = UserAggregate(
    create=lambda: [],
    add=lambda accumulator, value: [*accumulator, value][-2:],
    merge=lambda left, right: (left + right)[-2:],
    result=lambda accumulator: "/".join(map(str, accumulator)),
)


def test_a_fold_gets_the_rows_of_a_group_in_their_order() -> None:
    fold = Aggregate("user", "v", "last", pa.string(), LAST_TWO)
    found = results([fold], cut(pa.int64(), [(1, 1), (2, 9), (1, 2), (1, 3), (2, 8), (2, 7)]))
    assert found == [{"k": 1, "last": "2/3"}, {"k": 2, "last": "8/7"}]


def test_a_fold_without_a_column_gets_whole_rows() -> None:
    total = UserAggregate(lambda: 0, lambda a, row: a + row["k"] * row["v"], lambda a, b: a + b, lambda a: a)
    found = results([Aggregate("user", None, "n", pa.int64(), total)], cut(pa.int64(), [(2, 3), (2, 4)]))
    assert found == [{"k": 2, "n": 14}]


def test_whole_rows_have_no_columns_that_the_engine_computed() -> None:
    seen = UserAggregate(lambda: [], lambda a, row: [*a, *row], lambda a, b: a + b, ",".join)
    rows = [part.append_column(hidden("n"), part.column("v")) for part in cut(pa.int64(), [(2, 3)])]
    assert results([Aggregate("user", None, "n", pa.string(), seen)], rows) == [{"k": 2, "n": "k,v"}]


NAN, INF = math.nan, math.inf


@pytest.mark.parametrize("values", [[1.0, NAN, 2.0], [NAN, NAN], [NAN, None], [None], [-INF, NAN], [NAN, INF, 0.0]])
def test_nan_is_aggregated_as_in_polars(values: list[float | None]) -> None:
    functions = ("min", "max", "sum", "mean")
    rows = cut(pa.float64(), [(1, value) for value in values])
    (found,) = results([Aggregate(name, "v", name, pa.float64()) for name in functions], rows)
    frame = pl.DataFrame({"k": [1] * len(values), "v": pl.Series(values, dtype=pl.Float64)})
    expected = (
        frame.group_by("k").agg(*(getattr(pl.col("v"), name)().alias(name) for name in functions)).row(0, named=True)
    )
    if values == [None]:
        expected["sum"] = None  # in SQL, and here, the sum of nothing is null
    assert repr(found) == repr(expected)


def test_a_fold_that_raises_is_named_with_its_values() -> None:
    broken = UserAggregate(lambda: 0, lambda a, value: a // value, lambda a, b: a + b, lambda a: a)
    with pytest.raises(UserCodeError, match=r"'ratio' raised ZeroDivisionError.*over \[0\]"):
        results([Aggregate("user", "v", "ratio", pa.int64(), broken)], cut(pa.int64(), [(1, 0)]))
