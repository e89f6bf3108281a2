"""Objects and lists may be null although their content may not; a null where none is allowed is refused at each
depth."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from clonos_py.columns.casting import cast, with_nulls

POINT = pa.struct([pa.field("x", pa.int64(), nullable=False), pa.field("label", pa.string())])
POINTS = pa.list_(pa.field("item", POINT, nullable=False))
SHAPE = pa.struct([pa.field("name", pa.string(), nullable=False), pa.field("points", POINTS)])
NUMBERS = pa.list_(pa.field("item", pa.int64(), nullable=False))

ONE = {"x": 1, "label": None}


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([ONE, None, {"x": 2, "label": "b"}], POINT),
        ([[ONE, ONE], None, []], POINTS),
        ([{"name": "a", "points": [ONE]}, None, {"name": "b", "points": None}], SHAPE),
        ([[1, 2], None, [], [3]], NUMBERS),
        ([], SHAPE),
    ],
)
def test_nulls_that_are_allowed_are_kept(values: list[Any], kind: pa.DataType) -> None:
    loose: Any = pa.array([*values, *values], with_nulls(kind))
    for column in (loose, loose[1:], loose[len(values) :]):
        made = cast(column, kind)
        made.validate(full=True)
        assert made.type == kind
        assert made.to_pylist() == column.to_pylist()
        assert cast(made, kind) is made


@pytest.mark.parametrize(
    ("values", "kind", "place"),
    [
        ([None, {"x": None}], POINT, "x"),
        ([[1], [None]], NUMBERS, r"\[\]"),
        ([[ONE, None]], POINTS, r"\[\]"),
        ([[ONE], None, [{"x": None}]], POINTS, r"\[\]\.x"),
        ([{"name": "a", "points": [{"x": None}]}], SHAPE, r"points\[\]\.x"),
        ([None, {"name": None}], SHAPE, "name"),
    ],
)
def test_a_nested_null_that_is_not_allowed_is_refused(values: list[Any], kind: pa.DataType, place: str) -> None:
    with pytest.raises(pa.ArrowInvalid, match=f"^{place} is null, but may not be$"):
        cast(pa.array(values, with_nulls(kind)), kind)


def test_nested_values_get_the_requested_type() -> None:
    narrow = pa.array([{"x": 1}, None], pa.struct([pa.field("x", pa.int8())]))
    assert cast(narrow, pa.struct([pa.field("x", pa.int64(), nullable=False)])).to_pylist() == [{"x": 1}, None]
    with pytest.raises(pa.ArrowInvalid):
        cast(pa.array(["x"]), pa.int64())


def test_integers_are_decimals_if_they_fit_and_floats_never() -> None:
    money = pa.decimal128(18, 2)
    assert cast(pa.array([1, None, -(10**15)]), money).to_pylist() == [Decimal("1.00"), None, Decimal(-(10**15))]
    with pytest.raises(pa.ArrowInvalid, match="does not fit in precision 18"):
        cast(pa.array([10**17]), money)
    with pytest.raises(pa.ArrowInvalid, match="a float is not exact"):
        cast(pa.array([1.234]), money)


def test_items_of_large_lists_are_checked_too() -> None:
    kind = pa.large_list(pa.field("item", pa.int64(), nullable=False))
    assert cast(pa.array([[1], None, [2, 3]], pa.list_(pa.int32())), kind).to_pylist() == [[1], None, [2, 3]]
    with pytest.raises(pa.ArrowInvalid, match=r"\[\] is null, but may not be"):
        cast(pa.array([[1, None]]), kind)


def test_decimals_become_the_nearest_floats() -> None:
    """Also those that are read from Parquet as floats, and that a function returns where floats are declared."""
    numbers = [Decimal("2.55"), None, Decimal("-4611686018427387.93"), Decimal("12345678901234567890.12")]
    for values in (numbers, numbers[:3], numbers[:2]):
        column = pa.array(values, pa.decimal128(38, 2))
        for target in (pa.float64(), pa.float32()):
            expected = pa.array([None if value is None else float(value) for value in values]).cast(target)
            assert cast(column, target).equals(expected)
            assert cast(column.slice(1), target).equals(expected.slice(1))


TEXTS = pa.struct([pa.field("x", pa.list_(pa.string())), pa.field("y", pa.string()), pa.field("z", pa.float64())])
FLOATS = pa.struct([pa.field("x", pa.list_(pa.float64())), pa.field("y", pa.float64()), pa.field("z", pa.float64())])


@pytest.mark.parametrize("rows", [1, 200])
def test_floats_become_the_same_text_at_each_depth(rows: int) -> None:
    values = [
        {"x": [1.0, None, 1e-5], "y": 1e16, "z": 1.0},
        None,
        {"x": None, "y": None, "z": 2.0},
        {"x": [], "y": 2.5},
    ]
    column: Any = pa.array(values * rows, FLOATS)
    expected: list[Any] = [
        {"x": ["1.0", None, "1e-05"], "y": "1e+16", "z": 1.0},
        None,
        {"x": None, "y": None, "z": 2.0},
        {"x": [], "y": "2.5", "z": None},
    ]
    for start in (0, 1, len(values)):
        made = cast(column[start:], TEXTS)
        made.validate(full=True)
        assert made.to_pylist() == (expected * rows)[start:]
    assert cast(pa.array([1.0, None]), pa.string()).to_pylist() == ["1.0", None]
