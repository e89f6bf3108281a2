"""Attributes of process functions as columns, from the types in a checkpoint."""

from __future__ import annotations

import datetime
import enum
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Literal

import msgspec
import pyarrow as pa
import pytest

from clonos_py.model.record import Record
from clonos_py.plan.state_definitions import attribute_types
from clonos_py.stored_state.attributes import column_of


class Colour(enum.Enum):
    RED, BLUE = "red", "blue"


class Inner(Record):
    price: Decimal
    tags: list[str]


class Outer(Record):
    day: datetime.date
    inner: Inner | None = None


class Chain(Record):
    number: int
    rest: Chain | None = None


NOON = datetime.datetime(2024, 5, 1, 12, tzinfo=datetime.UTC)
DAY = datetime.date(2024, 5, 1)
INNER = {"price": Decimal("1.50"), "tags": ["a"]}
FORMS: list[tuple[Any, Sequence[Any], str, Sequence[Any]]] = [
    (int, [1, None], "int64", [1, None]),
    (int, [1, 2**63], "string", ["1", str(2**63)]),
    (int | None, [None, 3], "int64", [None, 3]),
    (float, [1.5], "double", [1.5]),
    (int | float, [1, 2.5], "double", [1.0, 2.5]),
    (bool, [True], "bool", [True]),
    (bytes, [b"\x00"], "binary", [b"\x00"]),
    (Decimal, [Decimal("1.25")], "decimal128(3, 2)", [Decimal("1.25")]),
    (datetime.datetime, [NOON], "timestamp[us, tz=UTC]", [NOON]),
    (datetime.date, [DAY], "date32[day]", [DAY]),
    (datetime.timedelta, [datetime.timedelta(seconds=3)], "duration[us]", [datetime.timedelta(seconds=3)]),
    (Colour, [Colour.RED], "string", ["red"]),
    (Literal["a", "b"], ["b"], "string", ["b"]),
    (list[int], [[1, 2], []], "list<item: int64>", [[1, 2], []]),
    (set[str], [{"x"}], "list<item: string>", [["x"]]),
    (tuple[int, ...], [(1, 2)], "list<item: int64>", [[1, 2]]),
    (tuple[int, str], [(1, "x")], "struct<0: int64, 1: string>", [{"0": 1, "1": "x"}]),
    (dict[str, int], [{"b": 1, "a": 2}], "map<string, int64>", [[("b", 1), ("a", 2)]]),
    (dict[int, list[str]], [{3: ["x"]}], "map<int64, list<item: string>>", [[(3, ["x"])]]),
    (
        Outer,
        [Outer(DAY, Inner(Decimal("1.50"), ["a"])), Outer(DAY)],
        "struct<day: date32[day], inner: struct<price: decimal128(3, 2), tags: list<item: string>>>",
        [{"day": DAY, "inner": INNER}, {"day": DAY, "inner": None}],
    ),
    (Any, [{"a": [1]}], "string", ['{"a":[1]}']),
    (int | str, [1, "x"], "string", ["1", '"x"']),
    (list, [[1, "x"]], "string", ['[1,"x"]']),
]


@pytest.mark.parametrize(("declared", "given", "kind", "expected"), FORMS, ids=lambda given: str(given)[:30])
def test_a_value_is_decoded_as_its_declared_type(
    declared: Any, given: Sequence[Any], kind: str, expected: Sequence[Any]
) -> None:
    stored = [None if value is None else msgspec.Raw(msgspec.msgpack.encode(value)) for value in given]
    column: pa.Array[Any] = column_of(dict(attribute_types("x", declared)), "x", stored)
    assert str(column.type) == kind
    assert column.to_pylist() == list(expected)


def test_a_record_within_itself_is_shown_as_far_as_its_fields_are_known() -> None:
    stored = [msgspec.Raw(msgspec.msgpack.encode(Chain(1, Chain(2))))]
    column = column_of(dict(attribute_types("x", Chain)), "x", stored)
    assert column.to_pylist() == [{"number": 1, "rest": '{"number":2,"rest":null}'}]
