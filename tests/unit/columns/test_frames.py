"""Frames of pyarrow, pandas and Polars become rows of a schema where no value is lost; else the column is named."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from clonos_py.columns.frames import ColumnError, TabularKind, batch_of, batch_with, frame_of
from clonos_py.model.record import Instant, Money, Record

pd = importlib.import_module("pandas")
COLUMNS = {"key": ["a", "b"], "value": [1, 2], "share": [0.5, float("nan")], "kept": [True, False]}
MAKERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "pyarrow.Table": pa.table,
    "pyarrow.RecordBatch": pa.record_batch,
    "pandas.DataFrame": pd.DataFrame,
    "polars.DataFrame": pl.DataFrame,
}
each_library = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


class Row(Record):
    value: int
    key: str
    share: float
    kept: bool


@each_library
def test_columns_are_found_by_name_and_have_the_types_that_are_declared(make: Callable[..., Any]) -> None:
    rows = batch_with(make(COLUMNS | {"more": [0, 0]}), Row.schema())
    assert rows.schema == Row.schema()
    assert rows.slice(0, 1).to_pylist() == [{"value": 1, "key": "a", "share": 0.5, "kept": True}]
    assert np.isnan(rows.column("share")[1].as_py())


@each_library
def test_columns_of_a_frame_get_the_types_of_rows(make: Callable[..., Any]) -> None:
    rows = batch_of(make(COLUMNS))
    assert [str(kind) for kind in rows.schema.types] == ["string", "int64", "double", "bool"]
    assert rows.schema.metadata is None


@pytest.mark.parametrize("kind", TabularKind, ids=lambda kind: kind.value)
def test_a_frame_for_a_function_converts_back_to_the_same_rows(kind: TabularKind) -> None:
    rows = pa.record_batch({"key": ["a", None], "value": [1, 2]})
    frame = frame_of(rows, kind)
    assert f"{type(frame).__module__.partition('.')[0]}.{type(frame).__name__}" == kind.value
    assert batch_with(frame, rows.schema).equals(rows)


class Wide(Record):
    at: Instant
    count: int | None
    price: Money
    tags: list[str]
    name: str | None


def test_missing_values_of_pandas_are_null_and_its_times_are_instants() -> None:
    frame = pd.DataFrame(
        {
            "at": pd.to_datetime(["1970-01-01 00:00:01", "1970-01-01 00:00:02"]).astype("datetime64[ns]"),
            "count": [1, None],
            "price": [Decimal("1.5"), Decimal("2.25")],
            "tags": [["x"], []],
            "name": pd.Categorical(["n", None]),
        },
        index=[7, 9],
    )
    assert [tuple(row.values()) for row in batch_with(frame, Wide.schema()).to_pylist()] == [
        (1_000_000, 1, Decimal("1.50"), ["x"], "n"),
        (2_000_000, None, Decimal("2.25"), [], None),
    ]
    assert batch_of(frame).schema.names == ["at", "count", "price", "tags", "name"]


def test_texts_lists_and_categories_of_polars_get_the_types_of_rows() -> None:
    frame = pl.DataFrame(
        {
            "at": [datetime(1970, 1, 1, 0, 0, 1)],
            "count": [None],
            "price": [Decimal("1.5")],
            "tags": [["x", "y"]],
            "name": pl.Series(["n"], dtype=pl.Categorical),
        }
    )
    assert [tuple(row.values()) for row in batch_with(frame, Wide.schema()).to_pylist()] == [
        (1_000_000, None, Decimal("1.50"), ["x", "y"], "n")
    ]
    kinds = dict(zip(frame.columns, map(str, batch_of(frame).schema.types), strict=True))
    assert (kinds["tags"], kinds["name"]) == ("list<item: string>", "string")


@each_library
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"value": [1.5, 2.0]}, "column 'value' is double, declared is int64: Float value 1.500000 was truncated"),
        ({"value": ["1", "2"]}, "column 'value' is .*string.*, declared is int64: no value of"),
        ({"value": [True, False]}, "column 'value' is bool, declared is int64: no value of bool is one of int64"),
        ({"key": ["a", None]}, "column 'key' is partly null, declared is string without nulls"),
    ],
)
def test_a_column_that_does_not_fit_is_named(make: Callable[..., Any], changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ColumnError, match=message):
        batch_with(make(COLUMNS | changed), Row.schema())


@each_library
def test_an_absent_column_is_named(make: Callable[..., Any]) -> None:
    with pytest.raises(ColumnError, match="column 'key' is absent; there are value"):
        batch_with(make({"value": [1]}), Row.schema())


def test_a_frame_that_cannot_be_converted_is_refused_with_its_column() -> None:
    with pytest.raises(ColumnError, match=r"the frame cannot be read: .*Conversion failed for column mixed"):
        batch_of(pd.DataFrame({"mixed": pd.Series([1, "a"], dtype=object)}))


def test_numbers_may_be_narrower_or_wider_where_they_fit() -> None:
    schema = pa.schema([pa.field("n", pa.int8())])
    assert batch_with(pl.DataFrame({"n": [100]}), schema).to_pylist() == [{"n": 100}]
    with pytest.raises(ColumnError, match="column 'n' is int64, declared is int8: Integer value 1000 not in range"):
        batch_with(pl.DataFrame({"n": [1000]}), schema)
