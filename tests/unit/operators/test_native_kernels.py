"""Operators emit the same bytes and have the same snapshots with native kernels and without: a task may be replaced by
one on a machine without them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pytest

from clonos_py.columns import gathering
from clonos_py.columns.compact import compact
from clonos_py.columns.kernels.library import without_library
from clonos_py.model.aggregates import Aggregate
from clonos_py.model.joins import JoinType
from clonos_py.model.operators import Operator
from clonos_py.model.tables import SortKey, weighted_schema
from clonos_py.operators.history_join import HistoryJoin
from clonos_py.operators.tables import TableAggregate
from clonos_py.operators.top import TopRows
from tests.unit.columns.native import needs_kernels
from tests.unit.operators.scripted import advance, compacted_early, opened, schema, stored

pytestmark = needs_kernels

INPUT = schema(("id", pa.int64()), ("text", pa.string()), ("price", pa.int64()), ("at", pa.int64()))
COUNTS = (
    Aggregate("count", None, "n", pa.int64()),
    Aggregate("max", "price", "most", pa.int64()),
    Aggregate("max", "text", "last", pa.string()),
    Aggregate("count_distinct", "text", "texts", pa.int64()),
    Aggregate("count_distinct", "price", "prices", pa.int64()),
)


def counting() -> Operator:
    fields = schema(("id", pa.int64()), *((each.name, each.type) for each in COUNTS))
    return TableAggregate(("id",), COUNTS, weighted_schema(fields), "deltas")


def first_rows() -> Operator:
    ranked = INPUT.append(pa.field("rank", pa.int64()))
    return TopRows(("text", "id"), 2, [SortKey("price", descending=True)], weighted_schema(ranked), "deltas", "rank")


def joining() -> Operator:
    columns = (("id", 0, "id"), ("left", 0, "text"), ("right", 1, "text"), ("at", 1, "at"))
    made = schema(("id", pa.int64()), ("left", pa.string()), ("right", pa.string()), ("at", pa.int64()))
    return HistoryJoin(["id"], ["id"], columns, made, (-40, 40), "at", "at", how=JoinType.FULL)


@pytest.fixture(autouse=True, scope="module")
def _state_lies_in_many_chunks() -> Iterator[None]:
    with compacted_early((gathering, "_ROWS_FOR_EACH_CHUNK", 0)):
        yield


def batch(random: np.random.Generator, at: int) -> pa.RecordBatch:
    rows = int(random.integers(0, 60))
    texts = pa.array([f"text {number}" * (number % 4) for number in random.integers(0, 12, rows).tolist()])
    columns = [
        pa.array(random.integers(0, 9, rows), mask=random.random(rows) < 0.1),
        texts,
        pa.array(random.integers(-5, 5, rows) << 40, mask=random.random(rows) < 0.2),
        pa.array(at + random.integers(0, 30, rows)),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=INPUT)


def bytes_of(make: Callable[[], Operator], sides: int) -> list[bytes]:
    """What the operator emits over generated batches, and its snapshots, from one of which it goes on."""
    random = np.random.default_rng(7)
    operator = make()
    ctx, out = opened(operator)
    found: list[bytes] = []
    for step in range(24):
        operator.on_rows(batch(random, 10 * step), step % sides)
        advance(operator, ctx, 10 * step)
        found += [compact(rows).serialize().to_pybytes() for _, rows in out.batches]
        out.batches.clear()
        if step % 8 == 5:
            state = operator.snapshot()
            for name in sorted(state.tables):
                found += [compact(chunk.rows).serialize().to_pybytes() for chunk in state.tables[name]]
            found.append(repr(sorted(state.values.items())).encode())
            operator = make()
            ctx, out = opened(operator)
            operator.restore([stored(state)])
    return found


@pytest.mark.parametrize(("make", "sides"), [(counting, 1), (first_rows, 1), (joining, 2)])
def test_an_operator_has_the_same_bytes_with_and_without_kernels(make: Callable[[], Operator], sides: int) -> None:
    native = bytes_of(make, sides)
    assert len(native) > 30
    with without_library():
        assert bytes_of(make, sides) == native
