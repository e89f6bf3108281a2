"""Expressions: their values for rows, and their error messages."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos_py import coalesce
from clonos_py.dsl.expressions import Expr, apply, col, lit, when
from clonos_py.model.errors import GraphError, UserCodeError
from clonos_py.model.record import Money

ROWS = pa.RecordBatch.from_arrays(
    [
        pa.array([7, -7, None, 0], pa.int64()),
        pa.array([2, 2, 3, 4], pa.int64()),
        pa.array([1, 2, 3, 4], pa.int32()),
        pa.array([0.5, 1.5, None, 2.5], pa.float64()),
        pa.array([Decimal("1.10"), None, Decimal("3.00"), Decimal("100.00")], pa.decimal128(18, 2)),
        pa.array(["ab/cd", "AB", None, "x/y/z"], pa.string()),
        pa.array([True, False, None, True], pa.bool_()),
        pa.array([0, -1, None, 1_700_000_000_123_456], pa.int64()),
    ],
    names=["a", "b", "i", "f", "price", "text", "flag", "moment"],
)


def lengths(texts: Any) -> Any:
    return pc.utf8_length(texts)


def smaller(left: Any, right: Any) -> Any:
    return pc.min_element_wise(left, right)


def first(values: Any) -> Any:
    return values.slice(0, 1)


def fails(*values: Any) -> Any:
    raise ValueError("no")


def values(expr: Expr) -> list[Any]:
    compiled = pickle.loads(pickle.dumps(expr.node.compile(ROWS.schema, "op")))
    result = compiled(ROWS)
    assert result.type == compiled.type == expr.node.field("x", ROWS.schema).type
    found: list[Any] = result.to_pylist()
    return found


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (col("a") + col("b"), [9, -5, None, 4]),
        (1 + col("b") * 2, [5, 5, 7, 9]),
        (10 - col("b"), [8, 8, 7, 6]),
        (-col("a"), [-7, 7, None, 0]),
        (col("a").abs(), [7, 7, None, 0]),
        (col("a") / col("b"), [3.5, -3.5, None, 0.0]),
        (col("a") // col("b"), [3, -4, None, 0]),
        (col("a") % col("b"), [1, 1, None, 0]),
        (col("f") // 1, [0.0, 1.0, None, 2.0]),
        (col("f").round(), [0.0, 2.0, None, 2.0]),
        (col("a") > 0, [True, False, None, False]),
        (col("i") <= 2, [True, True, False, False]),
        (col("i") > 2, [False, False, True, True]),
        (col("a") == 7, [True, False, None, False]),
        (col("a") != 7, [False, True, None, True]),
        (col("b").between(2, 3), [True, True, True, False]),
        (col("price") > 2, [False, None, True, True]),
        (col("price") == 1.1, [True, None, False, False]),
        (col("price") * 0.5, [Decimal("0.550"), None, Decimal("1.500"), Decimal("50.000")]),
        (col("a") * Decimal("0.5"), [Decimal("3.5"), Decimal("-3.5"), None, Decimal("0.0")]),
        (col("flag") & (col("b") > 3), [False, False, False, True]),
        (col("flag") | (col("b") == 3), [True, False, True, True]),
        (~col("flag"), [False, True, None, False]),
        (col("a").is_null(), [False, False, True, False]),
        (col("a").is_not_null(), [True, True, False, True]),
        (col("a").fill_null(1), [7, -7, 1, 0]),
        (col("b").is_in([2, 4]), [True, True, False, True]),
        (col("a").is_in([7]), [True, False, None, False]),
        (col("price").cast(float), [1.1, None, 3.0, 100.0]),
        (coalesce(col("price"), 0), [Decimal("1.10"), Decimal("0.00"), Decimal("3.00"), Decimal("100.00")]),
        (coalesce(col("price"), 1.5), [Decimal("1.10"), Decimal("1.50"), Decimal("3.00"), Decimal("100.00")]),
        (col("b").cast(Money), [Decimal("2.00"), Decimal("2.00"), Decimal("3.00"), Decimal("4.00")]),
        ((col("price") * 0.05).cast(Money), [Decimal("0.06"), None, Decimal("0.15"), Decimal("5.00")]),
        (col("text").lower(), ["ab/cd", "ab", None, "x/y/z"]),
        (col("text").upper() + "!", ["AB/CD!", "AB!", None, "X/Y/Z!"]),
        (col("text").length(), [5, 2, None, 5]),
        (col("text").contains("/"), [True, False, None, True]),
        (col("text").starts_with("ab"), [True, False, None, False]),
        (col("text").ends_with("z"), [False, False, None, True]),
        (col("text").matches("^[a-z]+/"), [True, False, None, True]),
        (col("text").replace("/", "-"), ["ab-cd", "AB", None, "x-y-z"]),
        (col("text").slice(1, 3), ["b/", "B", None, "/y"]),
        (col("text").split_part("/", 0), ["ab", "AB", None, "x"]),
        (col("text").split_part("/", 2), [None, None, None, "z"]),
        (col("text").extract("^([a-z]+)/([a-z]+)"), ["ab", None, None, "x"]),
        (col("text").extract("^([a-z]+)/([a-z]+)", 2), ["cd", None, None, "y"]),
        (col("moment").strftime("%Y-%m-%d"), ["1970-01-01", "1969-12-31", None, "2023-11-14"]),
        (col("moment").strftime("%H:%M:%S"), ["00:00:00", "23:59:59", None, "22:13:20"]),
        (col("moment").strftime("%H:%M"), ["00:00", "23:59", None, "22:13"]),
        (col("moment").hour(), [0, 23, None, 22]),
        (lit(1_700_000_000_000_000).strftime("%F"), ["2023-11-14"] * 4),
        (apply(lengths, "text", returns=int) * 2, [10, 4, None, 10]),
        (apply(smaller, col("a"), col("b") - 1, returns=float), [1.0, -7.0, 2.0, 0.0]),
        (lit("  a ").strip(), ["a"] * 4),
        (lit(1) + 2, [3] * 4),
        (when(col("b") > 2).then("big").otherwise("small"), ["small", "small", "big", "big"]),
        (when(col("flag")).then(1).when(col("b") == 3).then(2).otherwise(0), [1, 0, 2, 1]),
        (when(col("a") != 0).then(100 // col("a")).otherwise(-1), [14, -15, -1, -1]),
    ],
    ids=str,
)
def test_an_expression_returns_the_expected_values(expr: Expr, expected: list[Any]) -> None:
    assert values(expr) == expected


def test_split_part_of_a_slice_reads_only_its_own_rows() -> None:
    compiled = col("text").split_part("/", 1).node.compile(ROWS.schema, "op")
    assert compiled(ROWS.slice(3, 1)).to_pylist() == ["y"]


def test_a_literal_beside_a_narrow_integer_does_not_widen_it() -> None:
    assert (col("i") + 1).node.bind(ROWS.schema).type == pa.int32()
    assert (col("i") + 2**40).node.bind(ROWS.schema).type == pa.int64()


def test_a_datetime_beside_an_instant_becomes_microseconds() -> None:
    assert values(col("moment") - datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC))[0] == -2_000_000
    assert values(col("moment") + timedelta(seconds=2))[0] == 2_000_000
    with pytest.raises(GraphError, match="no time zone"):
        values(col("a") > datetime(2020, 1, 1))


def test_nullability_follows_the_inputs() -> None:
    fields: list[pa.Field[Any]] = [
        pa.field("x", pa.int64(), nullable=False),
        pa.field("t", pa.string(), nullable=False),
    ]
    schema = pa.schema(fields)
    assert not (col("x") + 1).node.field("y", schema).nullable
    assert col("t").split_part("/", 1).node.field("y", schema).nullable


def test_inputs_are_found_and_substituted() -> None:
    expr = (col("a") + col("b")) > col("a")
    assert expr.node.inputs() == {"a", "b"}
    replaced = expr.node.substitute({"a": (col("c") * 2).node})
    assert str(replaced) == "(((c * 2) + b) > (c * 2))"


@pytest.mark.parametrize(
    ("expr", "message"),
    [
        (col("prize") > 1, "no column 'prize'; there are a, b, i, f, price, text, flag, moment"),
        (col("text") > 5, "(text > 5): text is string and 5 is int64, and there is no > for that"),
        (col("text") + col("a"), "text is string and a is int64"),
        (col("flag") + 1, "flag is bool and 1 is int64"),
        (col("a") & col("flag"), "a is int64 and flag is bool"),
        (~col("a"), "a is int64, and there is no ~ for that"),
        (col("a").lower(), "a is int64, and there is no lower for that"),
        (col("text").cast(pa.list_(pa.int64())), "text is string, which cannot become list<item: int64>"),
        (col("a").is_in(["x"]), "a is int64, 'x' is string"),
        (when(col("a")).then(1).otherwise(2), "the condition a is int64, not bool"),
        (when(col("flag")).then(1).otherwise("x"), "one branch is int64, the other string"),
        (coalesce(col("price"), Decimal("0.005")), "one branch is decimal128(18, 2), the other decimal128(3, 3)"),
        (coalesce(col("price"), 10**17), "one branch is decimal128(18, 2), the other decimal128(18, 0)"),
        (coalesce(col("price"), "0"), "one branch is decimal128(18, 2), the other string"),
        ((col("price") * col("price")) * col("price"), "cast to a smaller type first"),
        (col("price") // 2, "price is decimal128(18, 2) and 2 is"),
        (col("i").strftime("%Y"), "i is int32, and there is no strftime for that"),
        (col("text").hour(), "text is string, and there is no hour for that"),
        (col("text").extract("(a"), "unclosed group"),
        (apply(lengths, "nothing", returns=int), "no column 'nothing'"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_impossible_expressions_are_refused_with_column_and_types(expr: Expr, message: str) -> None:
    with pytest.raises(GraphError) as caught:
        expr.node.bind(ROWS.schema)
    assert message in str(caught.value)


def test_python_and_or_not_are_refused_with_the_remedy() -> None:
    with pytest.raises(GraphError, match="write & for and"):
        bool(col("a") > 1 and col("b") > 1)
    with pytest.raises(GraphError, match=r"between\(\)"):
        bool(1 < col("a") < 3)


def test_an_aggregate_inside_an_expression_is_refused() -> None:
    with pytest.raises(GraphError, match="is an aggregate"):
        _ = lit(1) + col("b").max()


@pytest.mark.parametrize(
    ("expr", "message"),
    [
        (col("b") // col("a"), "operator 'op': (b // a): divide by zero, at row {'a': 0"),
        (col("b") % col("a"), "divide by zero"),
        (col("b") / col("a"), "divide by zero"),
        (col("a") * (2**62), "overflow"),
        (col("text").cast(int), "ab/cd"),
        (apply(first, "a", returns=int), "operator 'op': first(a): first gave 1 values"),
        (apply(fails, "a", "b", returns=int), "operator 'op': fails(a, b): fails raised ValueError('no')"),
        (apply(lengths, "text", returns=pa.list_(pa.int64())), "Unsupported cast"),
    ],
    ids=str,
)
def test_a_failure_names_operator_expression_and_row(expr: Expr, message: str) -> None:
    with pytest.raises(UserCodeError) as caught:
        values(expr)
    assert message in str(caught.value)


@given(
    st.integers(-(2**40), 2**40),
    st.integers(-1000, 1000).filter(bool),
)
def test_integer_division_is_that_of_python(a: int, b: int) -> None:
    rows = pa.RecordBatch.from_pydict({"a": [a], "b": [b]})
    assert (col("a") // col("b")).node.compile(rows.schema, "op")(rows).to_pylist() == [a // b]
    assert (col("a") % col("b")).node.compile(rows.schema, "op")(rows).to_pylist() == [a % b]


@given(st.lists(st.tuples(st.integers(-3, 3), st.booleans() | st.none())))
def test_a_conditional_evaluates_a_branch_only_for_its_own_rows(rows: list[tuple[int, bool | None]]) -> None:
    batch = pa.RecordBatch.from_arrays(
        [pa.array([n for n, _ in rows], pa.int64()), pa.array([flag for _, flag in rows], pa.bool_())], ["n", "flag"]
    )
    expr = when((col("n") != 0) & col("flag")).then(6 // col("n")).otherwise(0)
    expected = [6 // n if n != 0 and flag else 0 for n, flag in rows]
    assert expr.node.compile(batch.schema, "op")(batch).to_pylist() == expected


def test_repeated_texts_are_evaluated_once_with_the_same_result() -> None:
    texts = [f"a/{number % 7}" if number % 5 else None for number in range(3_000)]
    rows = pa.record_batch({"text": pa.array(texts, pa.string())}).slice(3)
    group = col("text").extract("a/([0-5])").node.compile(rows.schema, "op")
    assert group(rows).to_pylist() == [None if text is None or text[-1] == "6" else text[-1] for text in texts[3:]]
    part = col("text").split_part("/", 1).node.compile(rows.schema, "op")
    assert part(rows).to_pylist() == [None if text is None else text[-1] for text in texts[3:]]
    assert part(rows).type == part.type
    none = col("text").split_part("/", 2).node.compile(rows.schema, "op")
    assert none(rows).null_count == rows.num_rows
