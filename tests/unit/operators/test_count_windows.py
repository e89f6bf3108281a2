"""Count windows equal their definition row by row, for any batches, snapshots and parallelism."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos_py.model.aggregates import Aggregate
from clonos_py.model.operators import Operator
from clonos_py.model.tables import SortKey
from clonos_py.model.windows import Counted
from clonos_py.operators import count_windows
from clonos_py.operators.count_windows import CountWindowAggregate, CountWindowTop
from tests.unit.operators.scripted import Instances, compacted_early, opened, schema, stored

Row = tuple[str | None, int]
"""key, value"""

INPUT = schema(("key", pa.string()), ("value", pa.int64()))
VALUES = pa.list_(pa.field("item", pa.int64(), nullable=False))
AGGREGATES = (
    Aggregate("count", None, "n", pa.int64()),
    Aggregate("sum", "value", "total", pa.int64()),
    Aggregate("last", "value", "latest", pa.int64()),
    Aggregate("collect", "value", "all", VALUES),
)
RESULT = schema(("key", pa.string()), ("n", pa.int64()), ("total", pa.int64()), ("latest", pa.int64()), ("all", VALUES))
RANKED = schema(("key", pa.string()), ("value", pa.int64()), ("rank", pa.int64()))
BY_VALUE = (SortKey("value", descending=True),)
FIRST = 2


@pytest.fixture(autouse=True, scope="module")
def _state_is_compacted_and_windows_are_made_early() -> Iterator[None]:
    with compacted_early((count_windows, "_GATHERED_ROWS", 5)):
        yield


def aggregate(window: Counted) -> Operator:
    return CountWindowAggregate(("key",), window, AGGREGATES, RESULT)


def top(window: Counted) -> Operator:
    return CountWindowTop(("key",), window, FIRST, BY_VALUE, RANKED, "rank")


def batch(rows: Sequence[Row]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([dict(zip(INPUT.names, row, strict=True)) for row in rows], INPUT)


def windows_of(rows: Sequence[Row], window: Counted) -> list[tuple[Any, list[int]]]:
    """(key, values) of all windows in the order in which they are complete, then those that are incomplete."""
    taken: dict[str | None, list[int]] = {}
    found: list[tuple[Any, list[int]]] = []
    for key, value in rows:
        values = taken.setdefault(key, [])
        values.append(value)
        if len(values) >= window.size and (len(values) - window.size) % window.every == 0:
            found.append((key, values[-window.size :]))
    for key, values in taken.items() if window.incomplete else ():
        begun = range(0, len(values), window.every)
        found += [(key, values[start:]) for start in begun if start + window.size > len(values)]
    return found


def aggregates_of(windows: list[tuple[Any, list[int]]]) -> list[dict[str, Any]]:
    return [
        {"key": key, "n": len(values), "total": sum(values), "latest": values[-1], "all": values}
        for key, values in windows
    ]


def tops_of(windows: list[tuple[Any, list[int]]]) -> list[dict[str, Any]]:
    return [
        {"key": key, "value": value, "rank": rank}
        for key, values in windows
        for rank, value in enumerate(sorted(values, reverse=True)[:FIRST], 1)
    ]


def joined(history: list[list[Row]]) -> list[Row]:
    return [row for rows in history for row in rows]


KINDS = {"aggregate": (aggregate, aggregates_of), "top": (top, tops_of)}
kinds = pytest.mark.parametrize("kind", KINDS)
windows = st.builds(
    lambda every, times, incomplete: Counted(every * times, every, incomplete),
    st.integers(1, 4),
    st.integers(1, 3),
    st.booleans(),
)
rows_given = st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.integers(0, 9)), max_size=12)
histories = st.lists(rows_given, max_size=8)


@kinds
@given(histories, windows, st.sets(st.integers(0, 7)))
def test_results_and_their_order_depend_on_the_order_of_rows_alone(
    kind: str, history: list[list[Row]], window: Counted, restored_at: set[int]
) -> None:
    make, results_of = KINDS[kind]
    operator = make(window)
    _, out = opened(operator)
    results: list[dict[str, Any]] = []
    for number, rows in enumerate(history):
        if number in restored_at:
            state = stored(operator.snapshot())
            results += out.rows()
            operator = make(window)
            _, out = opened(operator)
            operator.restore([state])
        operator.on_rows(batch(rows), 0)
    results += out.take()
    complete = results_of(windows_of(joined(history), Counted(window.size, window.every)))
    assert results == complete
    operator.on_end()
    whole = results_of(windows_of(joined(history), window))
    assert sorted(map(str, out.rows())) == sorted(map(str, whole[len(complete) :]))
    operator.on_end()
    assert not window.incomplete or len(out.rows()) == len(whole) - len(complete), "each is emitted once"


@kinds
@given(histories, windows, st.dictionaries(st.integers(0, 7), st.integers(1, 3), max_size=3))
def test_results_do_not_depend_on_parallelism(
    kind: str, history: list[list[Row]], window: Counted, restarts: dict[int, int]
) -> None:
    make, results_of = KINDS[kind]
    running = Instances(lambda: make(window))
    found: list[dict[str, Any]] = []
    for number, rows in enumerate(history):
        if number in restarts:
            found += running.emitted()
            running.go_on_as(restarts[number])
        running.on_rows(batch(rows), "key")
    running.on_end()
    found += running.emitted()
    expected = results_of(windows_of(joined(history), window))
    assert sorted(map(str, found)) == sorted(map(str, expected))


@kinds
def test_a_key_whose_windows_are_complete_has_no_state(kind: str) -> None:
    operator = KINDS[kind][0](Counted(2, 2))
    opened(operator)
    for _ in range(100):
        operator.on_rows(batch([("a", 1), ("b", 1), ("a", 2), ("b", 2)]), 0)
    assert sum(chunk.rows.num_rows for chunk in operator.snapshot().tables["rows"]) <= 8


def test_without_keys_all_rows_are_counted_together() -> None:
    operator = CountWindowAggregate((), Counted(3, 3, True), AGGREGATES[:2], RESULT.remove(0).remove(3).remove(2))
    _, out = opened(operator)
    operator.on_rows(batch([("a", 1), ("b", 2)]), 0)
    operator.on_rows(batch([("c", 3), ("a", 4)]), 0)
    operator.on_end()
    assert out.rows() == [{"n": 3, "total": 6}, {"n": 1, "total": 4}]
