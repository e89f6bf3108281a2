"""Common parts of expressions are computed once, and only equal parts count as common."""

from __future__ import annotations

import pickle
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from clonos_py import apply, col, when
from clonos_py.dsl.expressions import Expr
from clonos_py.expressions.sharing import compiled
from clonos_py.model.errors import UserCodeError
from clonos_py.operators.stateless import Project

ROWS = pa.record_batch({"a": [1, 2, 3], "b": [0, 1, 2]})
CALLED: list[int] = []


def noted(values: pa.Array[Any]) -> pa.Array[Any]:
    CALLED.append(len(values))
    return pc.add(values, 1)


class Taker:
    def __init__(self) -> None:
        self.batches: list[pa.RecordBatch] = []

    def emit(self, rows: pa.RecordBatch) -> None:
        self.batches.append(rows)


def projected(*expressions: Expr, pickled: bool = False, times: int = 1) -> list[list[Any]]:
    CALLED.clear()
    columns = [(f"c{number}", expression.node) for number, expression in enumerate(expressions)]
    made, shared = compiled(columns, ROWS.schema, "op")
    schema = pa.schema([node.field(name, ROWS.schema) for name, node in columns])
    operator = Project(made, schema, shared)
    if pickled:
        operator = pickle.loads(pickle.dumps(operator))
    taker: Any = Taker()
    operator.out = taker
    for _ in range(times):
        operator.on_rows(ROWS, 0)
    return [column.to_pylist() for column in taker.batches[-1].columns]


@pytest.mark.parametrize("pickled", [False, True])
def test_a_common_part_is_computed_once_for_each_batch(pickled: bool) -> None:
    common = apply(noted, "a", returns=int)
    assert projected(common, common * 2, when(col("b") > 0).then(common).otherwise(0), pickled=pickled, times=2) == [
        [2, 3, 4],
        [4, 6, 8],
        [0, 3, 4],
    ]
    assert CALLED == [3, 2, 3, 2], "the rows of a branch are others than those of the batch"


def test_parts_of_a_common_part_are_computed_with_it() -> None:
    common = apply(noted, "a", returns=int)
    longer = common * 2 + 1
    assert projected(longer, longer, common) == [[5, 7, 9], [5, 7, 9], [2, 3, 4]]
    assert CALLED == [3]


def test_different_parts_with_similar_text_are_not_shared() -> None:
    first, second = (apply(lambda a, by=by: pc.add(a, by), "a", returns=int) for by in (1, 2))
    assert projected(first, second, col("a") + 1, col("a") + 1.0, (col("a") + 1) == (col("a") + 1.0)) == [
        [2, 3, 4],
        [3, 4, 5],
        [2, 3, 4],
        [2.0, 3.0, 4.0],
        [True, True, True],
    ]


def test_a_failure_names_the_row_and_is_not_cached() -> None:
    ratio = col("a") // col("b")
    with pytest.raises(UserCodeError, match=r"\(a // b\).*row \{'a': 1, 'b': 0\}"):
        projected(ratio, ratio + 1)


def test_expressions_without_a_common_part_share_nothing() -> None:
    assert compiled([("a", col("a").node), ("b", (col("a") + 1).node)], ROWS.schema, "op")[1] is None


class Rates:
    """A function whose text equals that of all others of its class."""

    def __init__(self, rate: int) -> None:
        self._rate = rate

    def __repr__(self) -> str:
        return "rates"

    def __call__(self, values: pa.Array[Any]) -> pa.Array[Any]:
        return pc.multiply(values, self._rate)

    def look(self, values: pa.Array[Any]) -> pa.Array[Any]:
        return self(values)


@pytest.mark.parametrize("function", [lambda rates: rates, lambda rates: rates.look, partial])
def test_functions_with_the_same_text_are_not_shared(function: Any) -> None:
    first, second = (apply(function(Rates(rate)), "a", returns=int) for rate in (1, 10))
    assert repr(first.node) == repr(second.node)
    assert projected(first + 1, second + 1) == [[2, 3, 4], [11, 21, 31]]
