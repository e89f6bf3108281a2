"""Filters, projections and batch functions keep the order of rows and the declared columns."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from clonos_py.model.errors import UserCodeError
from clonos_py.operators.stateless import Filter, MapBatches, Project
from clonos_py.services.context import Context
from tests.unit.operators.scripted import opened, schema

ROWS = pa.RecordBatch.from_pydict({"a": [1, 2, None, 4], "b": ["x", "y", "z", None]})


def over_one(rows: pa.RecordBatch) -> Any:
    return pc.greater(rows.column("a"), pa.scalar(1))


def test_filter_keeps_the_order_and_drops_rows_where_the_condition_is_null() -> None:
    operator = Filter(over_one)
    _, out = opened(operator)
    operator.on_rows(ROWS, 0)
    assert out.rows() == [{"a": 2, "b": "y"}, {"a": 4, "b": None}]


def test_filter_passes_whole_batches_and_no_empty_ones() -> None:
    operator = Filter(over_one)
    _, out = opened(operator)
    operator.on_rows(ROWS.slice(1, 1), 0)
    operator.on_rows(ROWS.slice(0, 1), 0)
    assert out.batches == [(0, ROWS.slice(1, 1))]


def test_project_computes_the_columns_of_the_schema_by_name() -> None:
    columns = schema(("twice", pa.int64()), ("b", pa.string()))
    operator = Project((("b", lambda r: r.column("b")), ("twice", lambda r: pc.multiply(r.column("a"), 2))), columns)
    _, out = opened(operator)
    operator.on_rows(ROWS.slice(2), 0)
    assert out.rows() == [{"twice": None, "b": "z"}, {"twice": 8, "b": None}]
    assert out.batches[0][1].schema == columns


def test_map_batches_takes_columns_by_name() -> None:
    columns = schema(("b", pa.string()), ("a", pa.int64()))
    operator = MapBatches(lambda rows: rows, columns)
    _, out = opened(operator)
    operator.on_rows(ROWS, 0)
    assert out.batches[0][1].schema == columns
    assert out.rows()[0] == {"a": 1, "b": "x"}


def test_map_batches_passes_the_context_to_a_function_that_takes_it() -> None:
    def stamped(rows: pa.RecordBatch, ctx: Context) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict({"now": [ctx.time.now()] * rows.num_rows})

    operator = MapBatches(stamped, schema(("now", pa.int64())), wants_ctx=True)
    _, out = opened(operator)
    operator.on_rows(ROWS.slice(0, 1), 0)
    assert out.rows() == [{"now": 1_000}]


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (None, "map_batches gave NoneType"),
        (ROWS.select(["a"]), "column 'b' .* is absent, declared is string"),
        (ROWS.select(["b", "a"]), "column 'a' .* is partly null, declared is int64 without nulls"),
        (pa.RecordBatch.from_pydict({"a": [1.5], "b": ["x"]}), "column 'a' .* is double, declared is int64"),
    ],
)
def test_map_batches_names_the_difference_to_the_declared_schema(given: Any, problem: str) -> None:
    columns = schema(("b", pa.string()), ("a", pa.int64()), required=("a",))
    operator = MapBatches(lambda rows: given, columns)
    opened(operator)
    with pytest.raises(UserCodeError, match=f"operator 'probe': .*{problem}"):
        operator.on_rows(ROWS, 0)
