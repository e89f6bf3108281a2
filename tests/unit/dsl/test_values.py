"""Equality and arithmetic: expressions agree with Python, and keys, state and joins with each other."""

from __future__ import annotations

import math
import operator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from clonos_py import col, lit, when
from clonos_py.columns.canonical import canonical
from clonos_py.columns.grouping import group
from clonos_py.columns.keys import hash_rows
from clonos_py.columns.matching import equal_rows
from clonos_py.columns.ordering import places
from clonos_py.dsl.expressions import Expr
from clonos_py.expressions.time_patterns import WRITTEN
from clonos_py.model.errors import GraphError, UserCodeError
from clonos_py.operators.key_states import encoded_keys

NAN = math.nan
FLOATS = st.floats(allow_nan=True) | st.sampled_from([0.0, -0.0, NAN, math.inf, -math.inf, 1e17, 3.0, 5e-324])
OTHER_NAN = float(np.array([0xFFF8000000000001], np.uint64).view(np.float64)[0])


def values_of(expression: Expr, **columns: Any) -> list[Any]:
    rows = pa.record_batch({n: v if isinstance(v, pa.Array) else pa.array(v) for n, v in columns.items()})
    found: list[Any] = expression.node.compile(rows.schema, "test")(rows).to_pylist()
    return found


def same(found: float, expected: float) -> bool:
    """Whether two floats are the same one, or both are NaN."""
    if math.isnan(expected):
        return math.isnan(found)
    return (found, math.copysign(1, found)) == (expected, math.copysign(1, expected))


@given(FLOATS, FLOATS)
@example(1e17, 3.0)
@example(-5.0, math.inf)
@example(-0.0, 1.0)
def test_whole_quotients_and_rests_of_floats_are_those_of_python(a: float, b: float) -> None:
    for kernel in (operator.mod, operator.floordiv):
        (found,), (beside_a_literal,) = (values_of(kernel(col("a"), e), a=[a], b=[b]) for e in (col("b"), b))
        if b:  # by zero floats follow IEEE 754
            assert same(found, kernel(a, b)), (kernel, found)
        assert same(found, beside_a_literal)


def test_rests_of_nulls_are_null() -> None:
    assert values_of(col("a") % col("b"), a=[1.5, None, 4.0], b=[1.0, 1.0, None]) == [0.5, None, None]
    assert values_of(col("a") // lit(None), a=[1.5, None]) == [None, None]


ORDERED = (-math.inf, -1.5, -0.0, 0.0, 1.5, math.inf, NAN, OTHER_NAN)


@pytest.mark.parametrize("a", ORDERED, ids=str)
@pytest.mark.parametrize("b", ORDERED, ids=str)
def test_the_table_of_equality_holds(a: float, b: float) -> None:
    """docs/design/dsl.md: ``==`` is that of IEEE 754; as keys all NaN are equal."""
    column = pa.array([a, b])
    assert values_of(col("a") == col("b"), a=[a], b=[b]) == values_of(col("a") == b, a=[a]) == [a == b]
    assert values_of(col("a").is_in([b, 77.0]), a=[a]) == [a == b]
    equal = a == b or (a != a and b != b)
    for kind, values in (("float", column), ("list", pa.array([[a], [b]])), ("struct", pa.array([{"x": a}, {"x": b}]))):
        rows = pa.record_batch({"k": values})
        first, second = encoded_keys(rows, ["k"])
        assert (first == second) is equal, kind
        hashes = hash_rows(rows, ["k"])
        assert bool(hashes[0] == hashes[1]) is equal, kind
        at = np.array([0]), np.array([1])
        assert equal_rows(rows, ["k"], at[0], rows, ["k"], at[1]).tolist() == [equal], kind
    assert (group([column], 2).size == 1) is equal
    ranks = places(column, descending=False).tolist()
    assert (ranks[0] == ranks[1]) is equal
    if not equal:
        assert (ranks[0] < ranks[1]) is (b != b or a < b)


@given(st.lists(st.none() | st.lists(st.none() | FLOATS, max_size=3), min_size=1, max_size=4), st.integers(0, 3))
def test_canonical_columns_are_equal_and_have_equal_bits(values: list[Any], start: int) -> None:
    for kind in (pa.list_(pa.float64()), pa.large_list(pa.float64())):
        column: Any = pa.array(values, kind).slice(start)
        found = canonical(column)
        expected = [v and [x if x is None else x + 0.0 for x in v] for v in column.to_pylist()]
        assert str(found.to_pylist()) == str(expected)
        assert found.type == kind


DECIMALS = st.decimals(min_value=-100, max_value=100, places=3)


@given(
    st.lists(DECIMALS.map(lambda d: d.quantize(Decimal("0.01"))), min_size=1, max_size=5),
    st.lists(DECIMALS | st.integers(-3, 3) | st.sampled_from([0.5, 1.25]), max_size=4),
)
def test_membership_is_equality_with_one_of_the_values(values: list[Decimal], members: list[Any]) -> None:
    money = pa.array(values, pa.decimal128(18, 2))
    expected = [False] * len(values)
    for member in members:
        expected = [a or b for a, b in zip(expected, values_of(col("m") == member, m=money), strict=True)]
    assert values_of(col("m").is_in(members), m=money) == expected
    assert expected == [
        any(value == Decimal(repr(m)) if isinstance(m, float) else value == m for m in members) for value in values
    ]


def test_membership_takes_what_equality_takes() -> None:
    assert values_of(col("i").is_in([1.5, 2.0, Decimal("3"), None]), i=[1, 2, 3, None]) == [False, True, True, None]
    assert values_of(col("f").is_in([1, True and 2, NAN]), f=[1.0, 2.0, NAN]) == [True, True, False]
    at = datetime(2024, 1, 1, tzinfo=UTC)
    assert values_of(col("t").is_in([at]), t=pa.array([at, at + timedelta(1)], pa.timestamp("ms", "UTC"))) == [
        True,
        False,
    ]
    with pytest.raises(GraphError, match=r"i.is_in.*i is int64, 'x' is string, and the two cannot be compared"):
        values_of(col("i").is_in(["x"]), i=[1])


EXPONENTS = st.builds(lambda digits, exponent: float(f"{digits}e{exponent}"), st.integers(-99, 99), st.integers(-9, 19))


@pytest.mark.parametrize("rows", [1, 300])
@given(st.lists(st.none() | FLOATS | EXPONENTS, min_size=1, max_size=8))
@example([0.0, -0.0, 1.0, 1e15, 1e16, 9999999999999998.0, 1e-4, 9.999e-5, 1e-7, NAN, -NAN, -math.inf, None])
def test_floats_become_the_text_that_python_writes(rows: int, values: list[float | None]) -> None:
    """In a few rows as in many, which Polars converts."""
    expected = [None if value is None else str(value) for value in values]
    assert values_of(col("x").cast(str), x=pa.array(values * rows, pa.float64())) == expected * rows
    if values[0] is not None:
        assert values_of(lit(values[0]).cast(str), x=[1]) == expected[:1]


@pytest.mark.parametrize("rows", [1, 300])
@given(st.lists(st.none() | st.floats(width=32), min_size=1, max_size=8))
@example([0.1, -0.0, 1e15, 123456.79, 16777216.0, 1e16, 1e-5, 3.4028234663852886e38, NAN, math.inf])
def test_narrow_floats_become_the_shortest_text_with_their_value(rows: int, values: list[float | None]) -> None:
    column = pa.array(np.array([x or 0.0 for x in values], np.float32), mask=np.array([x is None for x in values]))
    found = values_of(col("x").cast(str), x=pa.concat_arrays([column] * rows))
    assert found == found[: len(values)] * rows
    for text, value in zip(found, column.to_pylist(), strict=False):
        assert (text is None) == (value is None)
        if value is not None:
            assert text == repr(float(str(np.float32(value)))), "the digits of NumPy in the form of Python"
            assert same(float(np.float32(text)), value)


MOMENTS = st.datetimes(datetime(1000, 1, 1), datetime(9999, 12, 31), timezones=st.just(UTC))


@given(
    st.lists(MOMENTS, min_size=1, max_size=3), st.lists(st.sampled_from([*WRITTEN, "T", "é"]), max_size=5).map("".join)
)
@example([datetime(2024, 2, 29, 1, 2, 3, 4, tzinfo=UTC)], "%f%%f%H%f")
def test_times_are_written_as_python_writes_them(times: list[datetime], pattern: str) -> None:
    assert values_of(col("t").strftime(pattern), t=[*times, None]) == [
        *(time.strftime(pattern) for time in times),
        None,
    ]


@pytest.mark.parametrize("pattern", ["%s", "%k", "%-d", "%Q", "%", "%H %"])
def test_unknown_directives_are_refused_where_they_are_written(pattern: str) -> None:
    with pytest.raises(GraphError, match=r"test_values.py:\d+: strftime\(.*is not among its directives"):
        col("t").strftime(pattern)


INTEGERS = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63)])
COMPARED = INTEGERS | FLOATS | st.sampled_from([2.0**53, 2.0**63, -(2.0**63)])


@given(st.lists(st.tuples(st.none() | INTEGERS, st.none() | COMPARED), min_size=1, max_size=4))
@example([(2**53 + 1, 2.0**53), (2**63 - 1, 2.0**63)])
def test_numbers_of_different_types_are_compared_as_in_python(pairs: list[tuple[int | None, float | None]]) -> None:
    left = [a for a, _ in pairs]
    right = pa.array([b if b is None else float(b) for _, b in pairs], pa.float64())
    for compare in (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne):
        expected = [
            None if a is None or b is None else compare(a, b) for a, b in zip(left, right.to_pylist(), strict=True)
        ]
        assert values_of(compare(col("a"), col("b")), a=pa.array(left, pa.int64()), b=right) == expected
    for member in right.to_pylist():
        found = values_of(col("a").is_in([member]), a=pa.array(left, pa.int64()))
        assert found == [None if a is None else a == member for a in left]


def test_large_unsigned_integers_are_compared_as_in_python() -> None:
    unsigned, signed = pa.array([2**64 - 1, 1, 2**63], pa.uint64()), pa.array([-1, 1, None], pa.int64())
    assert values_of(col("a") > col("b"), a=unsigned, b=signed) == [True, False, None]
    assert values_of(col("a") == 2**64 - 1, a=unsigned) == [True, False, False]
    assert values_of(lit(2**63 - 1) < lit(2.0**63), a=[1]) == [True]


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1).filter(bool))
@example(-(2**63), -1)
def test_rests_of_integers_are_those_of_python(a: int, b: int) -> None:
    assert values_of(col("a") % col("b"), a=[a], b=[b]) == values_of(col("a") % b, a=[a]) == [a % b]


@pytest.mark.parametrize("kind", [pa.int8(), pa.int16(), pa.int32(), pa.int64()])
def test_rests_have_the_type_of_their_integers(kind: Any) -> None:
    least = -(1 << kind.bit_width - 1)
    rows = pa.record_batch({"a": pa.array([least, 7], kind), "b": pa.array([-1, -2], kind)})
    for rest, expected in ((col("a") % col("b"), [0, -1]), (col("a") % -1, [0, 0])):
        compiled = rest.node.compile(rows.schema, "test")
        found = compiled(rows)
        assert (found.type, found.to_pylist()) == (compiled.type, expected)


@given(st.lists(FLOATS | st.integers(-(10**6), 10**6).map(lambda i: i / 1000), min_size=1), st.integers(-4, 24))
@example([82.35, 11.705, 1e308, 0.5, 1.5, -0.04, 4503599627370497.5, 2.0**50 + 0.25], 1)
@example([1e300, 5e-324], 400)
def test_floats_are_rounded_as_in_python(values: list[float], places: int) -> None:
    expected = [round(value, places) if math.isfinite(value) else value for value in values]
    found = values_of(col("a").round(places), a=[*values, None])
    assert found.pop() is None
    assert all(map(same, found, expected)), (found, expected)
    assert same(values_of(lit(values[0]).round(places), a=[1])[0], expected[0])


def test_a_branch_of_a_conditional_is_rounded_for_its_own_rows_only() -> None:
    small = col("a") < 1e300
    assert values_of(when(small).then(col("a").round(-308)).otherwise(None), a=[1.0, 1.79e308]) == [0.0, None]
    with pytest.raises(UserCodeError, match="overflow, at row"):
        values_of(col("a").round(-308), a=[1.0, 1.79e308])


MONEYS = st.integers(-(10**17), 10**17).filter(bool).map(lambda cents: Decimal(cents).scaleb(-2))


@given(st.lists(st.tuples(MONEYS, st.floats(-1e6, 1e6).filter(bool) | st.just(2.55)), min_size=1))
@example([(Decimal("2.55"), 2.55), (Decimal("90071992547409.93"), 0.1)])
def test_decimals_beside_floats_are_the_nearest_floats(pairs: list[tuple[Decimal, float]]) -> None:
    money, floats = pa.array([m for m, _ in pairs], pa.decimal128(19, 2)), [f for _, f in pairs]
    nearest = [float(m) for m, _ in pairs]
    assert values_of(col("m").cast(float), m=money) == nearest
    for kernel in (operator.add, operator.sub, operator.mul, operator.truediv, operator.mod, operator.eq, operator.lt):
        expected = [kernel(m, f) for m, f in zip(nearest, floats, strict=True)]
        assert values_of(kernel(col("m"), col("f")), m=money, f=floats) == expected, kernel
        swapped = [kernel(f, m) for m, f in zip(nearest, floats, strict=True)]
        assert values_of(kernel(col("f"), col("m")), m=money, f=floats) == swapped, kernel


@given(INTEGERS, FLOATS)
@example(2**53 + 1, 0.5)
def test_integers_beside_floats_are_the_nearest_floats(a: int, b: float) -> None:
    for kernel in (operator.add, operator.sub, operator.mul):
        (found,) = values_of(kernel(col("a"), col("b")), a=[a], b=[b])
        assert same(found, kernel(a, b)), kernel


def test_a_branch_that_is_null_has_the_type_of_the_other() -> None:
    large = col("a") > 1
    assert values_of(when(large).then("large").otherwise(None), a=[1, 2]) == [None, "large"]
    assert values_of(when(large).then(None).otherwise(1.5), a=[1, 2]) == [1.5, None]
    assert values_of(when(large).then(None).when(col("a") == 1).then(None).otherwise("x"), a=[0, 2]) == ["x", None]
    assert values_of(when(large).then("x").when(col("a") == 1).then(None).otherwise(None), a=[0, 2]) == [None, "x"]


def test_an_error_of_a_value_names_the_row_that_has_it() -> None:
    with pytest.raises(UserCodeError, match=r"Failed to parse string: 'x' .*at row \{'a': 'x'\}"):
        values_of(col("a").cast(int), a=["1", "x", "2", "y"])


def test_errors_of_arguments_say_what_is_wrong_with_them() -> None:
    wrong: tuple[tuple[Expr, str], ...] = (
        (lit(2**64), r"18446744073709551616 cannot be a value of a column: it does not fit into 64 bits"),
        (col("a").extract("("), r"a is string: unclosed group$"),
        (col("a").extract("(x)", 2), r"a is string: the pattern has no group 2, only 1"),
        (col("a").matches("("), r"a is string: Invalid regular expression: missing \): \($"),
    )
    for expression, message in wrong:
        with pytest.raises(GraphError, match=message):
            values_of(expression, a=["x"])


def test_methods_of_text_take_plain_text_and_refuse_what_has_no_end() -> None:
    wrong: Any
    for wrong in (col("b"), None, 5, b"x"):
        for method in ("contains", "starts_with", "ends_with", "matches", "extract"):
            with pytest.raises(GraphError, match=rf"test_values.py:\d+: {method}\(.*it takes plain text"):
                getattr(col("a"), method)(wrong)
        with pytest.raises(GraphError, match=r"replace\(.*it takes plain text"):
            col("a").replace("x", wrong)
    with pytest.raises(GraphError, match=r"test_values.py:\d+: replace\(''.*is not empty"):
        col("a").replace("", "x")
    with pytest.raises(GraphError, match="it takes the number of a group"):
        col("a").extract("x", -1)
    wrong = 1.5
    with pytest.raises(GraphError, match="it takes a whole number of decimal places"):
        col("a").round(wrong)
    with pytest.raises(GraphError, match="it takes whole numbers"):
        col("a").slice(0, wrong)
