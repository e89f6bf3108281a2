"""From which rows of an operator its results came: with several rows in a batch, some of which leave no result."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pytest

from clonos_py.model.calls import Waiting
from clonos_py.model.operators import Operator
from clonos_py.model.processes import ProcessInput
from clonos_py.model.record import DeadLetter, Record
from clonos_py.model.record_codec import encode
from clonos_py.model.tables import weighted_schema
from clonos_py.operators.async_rows import MapAsyncRows
from clonos_py.operators.broadcast import BroadcastOperator
from clonos_py.operators.gathered_batches import MapGatheredBatches
from clonos_py.operators.limit import Limit
from clonos_py.operators.process import BroadcastProcess, Process, ProcessOperator, broadcast_state, event_timer
from clonos_py.operators.rows import MapRows
from clonos_py.operators.stateless import Filter
from clonos_py.operators.table_changes import TableChanges
from clonos_py.operators.table_output import TableOutput
from clonos_py.plan.logical import CallPerBatch, LimitRows, MergeDeltas, Node, RunProcess
from clonos_py.runtime.replay.histories import FromFrames, FromOperator, TaskHistory
from clonos_py.runtime.replay.row_rules import OriginRows, TracedRows, inputs_of
from clonos_py.runtime.replay.traced_operators import traced
from clonos_py.services.async_context import AsyncContext
from clonos_py.services.context import Context
from tests.unit.operators.scripted import Collected, ScriptedContext, advance, opened
from tests.unit.operators.test_async_rows import answer, oracle


class Number(Record):
    id: int
    key: int = 0


def numbers(*ids: int, keys: tuple[int, ...] = ()) -> pa.RecordBatch:
    return encode([Number(n, keys[i] if keys else 0) for i, n in enumerate(ids)], Number.schema())


def watched(factory: Callable[[], Operator]) -> tuple[Operator, TaskHistory, ScriptedContext, Collected]:
    history = TaskHistory()
    operator = traced(factory, 0, lambda ctx: history, None)
    return operator, history, *opened(operator)


def origin(history: TaskHistory, batch: int, *rows: int, verb: str = "map", node: Node | None = None) -> OriginRows:
    """Of rows of the batch that the operator emitted as number ``batch``."""
    of_operator = history.operator(0)
    return inputs_of(TracedRows(of_operator, of_operator.emitted[batch], np.array(rows), verb, node))


def plain(found: OriginRows) -> dict[int, list[int]]:
    return {number: rows.tolist() for number, rows in found.rows.items()}


def column(rows: pa.RecordBatch, name: str) -> list[Any]:
    return rows.column(name).to_pylist()


def some(row: Number) -> Number:
    if row.id < 0:
        raise ValueError("negative")
    return row


def as_many(row: Number) -> Iterator[Number]:
    return iter([row] * row.id)


@pytest.mark.parametrize(
    ("function", "kind", "origins"),
    [(some, "map", [0, 2, 4]), (as_many, "flat_map", [0, 2, 2, 4]), (lambda row: row.id > 0, "filter", [0, 2, 4])],
)
def test_a_row_function_tells_the_row_of_each_result(
    function: Any, kind: Literal["map", "flat_map", "filter"], origins: list[int]
) -> None:
    operator, history, _, _ = watched(partial(MapRows, function, Number, Number.schema(), kind, False, "catch"))
    operator.on_rows(numbers(7, 7), 0)
    operator.on_rows(numbers(1, -1, 2, -1, 1), 0)
    last = max(n for n, emitted in enumerate(history.operator(0).emitted) if emitted.port == 0)
    found = [origin(history, last, row) for row in range(len(origins))]
    assert [plain(each) for each in found] == [{1: [row]} for row in origins]
    assert all(each.exact for each in found)


def test_a_dead_letter_came_from_the_row_that_failed() -> None:
    operator, history, _, out = watched(partial(MapRows, some, Number, Number.schema(), "map", False, "catch"))
    operator.on_rows(numbers(1, -1, 2, -1), 0)
    assert [batch.schema for port, batch in out.batches if port == 1] == [DeadLetter.schema()]
    assert [plain(origin(history, 1, row)) for row in (0, 1)] == [{0: [1]}, {0: [3]}]


async def asks(row: Number, ctx: AsyncContext) -> Number:
    return Number(row.id, await ctx.call(oracle, row.id))


@pytest.mark.parametrize("ordered", [True, False])
def test_an_asynchronous_function_tells_the_row_of_each_result(ordered: bool) -> None:
    waiting = Waiting(10, ordered, None)
    operator, history, ctx, out = watched(partial(MapAsyncRows, asks, Number, Number.schema(), "map", True, waiting))
    assert isinstance(operator, MapAsyncRows)
    operator.on_rows(numbers(10, 11), 0)
    operator.on_rows(numbers(12, 13), 0)
    for number in (3, 1, 0, 2):
        answer(operator, ctx, number, 5)
    places = {10: {0: [0]}, 11: {0: [1]}, 12: {1: [0]}, 13: {1: [1]}}
    for number, (_, batch) in enumerate(out.batches):
        for row, name in enumerate(column(batch, "id")):
            assert plain(origin(history, number, row)) == places[name]


def test_a_filter_tells_the_rows_that_it_kept() -> None:
    def odd(rows: pa.RecordBatch) -> Any:
        return pa.array([n % 2 == 1 for n in column(rows, "id")])

    operator, history, _, _ = watched(partial(Filter, odd))
    operator.on_rows(numbers(1, 2, 3, 3, 4, 1), 0)
    assert [plain(origin(history, 0, row, verb="drop late")) for row in range(4)] == [
        {0: [0]}, {0: [2]}, {0: [3]}, {0: [5]},
    ]  # fmt: skip


def test_a_limit_tells_the_rows_that_passed() -> None:
    operator, history, _, _ = watched(partial(Limit, 3))
    operator.on_rows(numbers(1, 2), 0)
    operator.on_rows(numbers(3, 4, 5), 0)
    node = Node(0, "limit", LimitRows(3), (), (Number.schema(),))
    found = [origin(history, 0, 1, verb="limit", node=node), origin(history, 1, 0, verb="limit", node=node)]
    assert [(plain(each), each.exact) for each in found] == [({0: [1]}, True), ({1: [0]}, True)]


def test_merged_deltas_came_from_those_of_their_keys() -> None:
    schema = weighted_schema(Number.schema())
    node = Node(0, "upserts", MergeDeltas(("id",), ()), (), (schema,))
    operator, history, _, _ = watched(partial(TableChanges, ("id",), TableOutput(schema, "deltas", ())))
    deltas = pa.record_batch([[1, 2, 1, 3], [0, 0, 5, 0], pa.array([-1, 1, 1, -1], pa.int8())], schema=schema)
    operator.on_rows(deltas, 0)
    emitted = column(history.operator(0).emitted[0].rows, "id")
    found = [origin(history, 0, emitted.index(key), verb="upserts", node=node) for key in (1, 2, 3)]
    assert [(plain(each), each.exact) for each in found] == [({0: [0, 2]}, True), ({0: [1]}, True), ({0: [3]}, True)]


def test_a_gathered_batch_may_have_rows_of_earlier_batches() -> None:
    operator, history, _, _ = watched(partial(MapGatheredBatches, lambda rows: rows, Number.schema(), 3, 20_000))
    operator.on_rows(numbers(1, 2), 0)
    operator.on_rows(numbers(3), 0)
    work = CallPerBatch(lambda rows: rows, False, gathered=(3, 20_000))
    found = origin(history, 0, 0, verb="map_batches", node=Node(0, "map_batches", work, (), (Number.schema(),)))
    assert (plain(found), found.exact) == ({0: [0, 1], 1: [0]}, False)


class Twice(Process[Number, Number]):
    late = event_timer()

    def on_row(self, row: Number, ctx: Context) -> Number | None:
        self.late.set(50)
        return None if row.id < 0 else Number(row.id, row.key)

    @late.fires
    def fired(self, ctx: Context) -> Number:
        return Number(0, ctx.key)


def test_a_process_function_tells_its_row_and_those_of_the_key_before_it() -> None:
    given = ProcessInput(pa.schema([("key", pa.int64())]), Number)
    node = Node(0, "process", RunProcess(Twice, (given,), (Number,), False), (), ())
    operator, history, ctx, _ = watched(partial(ProcessOperator, Twice, (given,), (Number,)))
    operator.on_rows(numbers(1, 2, 3, keys=(7, 8, 7)), 0)
    operator.on_rows(numbers(4, -1, 5, 6, keys=(7, 8, 8, 7)), 0)
    found = origin(history, 1, 1, verb="process", node=node)
    assert {number: rows.tolist() for number, rows in found.called.items()} == {1: [2]}
    assert plain(found) == {0: [1], 1: [1, 2]}
    assert not found.exact
    first = origin(history, 1, 0, verb="process", node=node)
    assert plain(first) == {0: [0, 2], 1: [0]}
    advance(operator, ctx, 100)
    timer = origin(history, 2, 0, verb="process", node=node)
    assert (dict(timer.called), plain(timer)) == ({}, {0: [0, 2], 1: [0, 3]})


class Flagged(BroadcastProcess[Number, Number, Number]):
    seen: dict[int, int] = broadcast_state()

    def on_row(self, row: Number, ctx: Context) -> Number:
        return row

    def on_broadcast(self, row: Number, ctx: Context) -> Number:
        self.seen[row.id] = row.key
        return row


def test_a_row_may_have_come_from_all_rows_of_a_broadcast_stream_before_it() -> None:
    key = pa.schema([("key", pa.int64())])
    inputs = (ProcessInput(key, Number), ProcessInput(pa.schema([]), Number, broadcast=True))
    operator, history, _, _ = watched(partial(BroadcastOperator, Flagged, inputs, (Number,), False))
    for side, rows in enumerate((numbers(1, 2, keys=(7, 8)), numbers(5, 6), numbers(3, 4, keys=(8, 7)))):
        operator.on_rows(rows, side % 2)
    operator.on_rows(numbers(9), 1)
    node = Node(0, "process", RunProcess(Flagged(), inputs, (Number,), False), (), (Number.schema(),))
    found = [plain(origin(history, batch, row, verb="process", node=node)) for batch, row in ((0, 1), (1, 0), (2, 1))]
    assert found == [{0: [1]}, {1: [0]}, {0: [0], 1: [0, 1], 2: [1]}]


def test_a_batch_knows_what_had_emitted_it_even_if_it_is_passed_on_unchanged() -> None:
    """A filter that keeps all rows emits the batch that it took: the next operator follows the filter."""
    history = TaskHistory()
    third = traced(partial(Filter, _all), 2, lambda ctx: history, None)
    second = traced(partial(Filter, _all), 1, lambda ctx: history, None)
    first = traced(partial(Filter, _all), 0, lambda ctx: history, None)
    opened(third)
    ctx = ScriptedContext()
    second.open(ctx, _Behind(third))
    first.open(ctx, _Behind(second, third))
    first.on_rows(numbers(1, 2), 0)
    assert history.operator(0).taken[0].origin == FromFrames(0, 1)
    assert history.operator(1).taken[0].origin == FromOperator(0, 0)
    assert [taken.origin for taken in history.operator(2).taken] == [FromOperator(1, 0), FromOperator(0, 0)]


def _all(rows: pa.RecordBatch) -> Any:
    return pa.array([True] * rows.num_rows)


class _Behind:
    """Passes rows on to these operators."""

    def __init__(self, *operators: Operator) -> None:
        self._operators = operators

    def emit(self, rows: pa.RecordBatch, port: int = 0) -> None:
        for operator in self._operators:
            operator.on_rows(rows, 0)
