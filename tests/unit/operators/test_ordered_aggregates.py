"""``first``, ``last`` and ``collect``: in the order of arrival, for any event times, in windows of every kind and in
tables, and after restores at another parallelism."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos_py.columns.keys import key_groups
from clonos_py.model.aggregates import Aggregate
from clonos_py.model.operators import Operator
from clonos_py.model.times import MAX_TIME
from clonos_py.model.windows import Hopping, Session, Tumbling
from clonos_py.operators import panes
from clonos_py.operators.sessions import SessionAggregate
from clonos_py.operators.tables import TableAggregate
from clonos_py.operators.windows import WindowAggregate
from tests.unit.operators.scripted import Collected, ScriptedContext, compacted_early, opened, read_by, stored

LISTS = pa.list_(pa.field("item", pa.string(), nullable=False))
AGGREGATES = (
    Aggregate("first", "value", "first", pa.string()),
    Aggregate("last", "value", "last", pa.string()),
    Aggregate("collect", "value", "all", LISTS),
)
RESULT = pa.schema({a.name: a.type for a in AGGREGATES}.items())
TABLE = pa.schema([pa.field("key", pa.int64()), *RESULT])
WINDOWED = pa.schema([pa.field("key", pa.int64()), pa.field("window_end", pa.int64()), *RESULT])
Row = tuple[int, str | None, int]
ROWS = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from([None, "a", "b", "c", "d"]), st.integers(0, 60)), max_size=8
)
HISTORY = st.lists(ROWS, max_size=8)
RESTARTS = st.dictionaries(st.integers(1, 8), st.integers(1, 3), max_size=3)


@pytest.fixture(autouse=True, scope="module")
def _state_is_compacted_early() -> Iterator[None]:
    with compacted_early((panes, "_DOUBLING_ROWS", 5), (panes, "_MANY_CHUNKS", 3)):
        yield


def played(make: Callable[[], Operator], history: list[list[Row]], restarts: dict[int, int]) -> list[dict[str, Any]]:
    """The output at the end, with other instances from the steps in ``restarts`` on."""
    running: list[tuple[Operator, ScriptedContext, Collected]] = []
    for number, rows in enumerate([*history, []]):
        if number == 0 or number in restarts:
            parts = [stored(operator.snapshot()) for operator, _, _ in running]
            cuts = np.linspace(0, 128, restarts.get(number, 1) + 1).astype(int).tolist()
            running = []
            for low, high in itertools.pairwise(cuts):
                operator = make()
                ctx, out = opened(operator, ScriptedContext(range(low, high)))
                operator.restore(read_by(parts, ctx.groups))
                running.append((operator, ctx, out))
        columns = [list(column) for column in zip(*rows, strict=True)] or [[], [], []]
        kinds = (pa.int64(), pa.string(), pa.int64())
        arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
        batch = pa.record_batch(arrays, names=["key", "value", "at"])
        groups = key_groups(batch, ["key"], 128) if rows else np.empty(0, np.int32)
        for operator, ctx, _ in running:
            operator.on_rows(batch.filter(pa.array((groups >= ctx.groups.start) & (groups < ctx.groups.stop))), 0)
    for operator, ctx, _ in running:
        ctx.watermark = MAX_TIME
        operator.on_watermark(MAX_TIME)
        operator.on_end()
    return [row for _, _, out in running for row in out.rows()]


def expected(groups: dict[Any, list[str | None]]) -> dict[Any, tuple[str | None, str | None, list[str]]]:
    present = {group: [value for value in values if value is not None] for group, values in groups.items()}
    return {group: (v[0] if v else None, v[-1] if v else None, v) for group, v in present.items()}


def found(rows: list[dict[str, Any]], *group: str) -> dict[Any, Any]:
    return {tuple(row[name] for name in group): (row["first"], row["last"], row["all"]) for row in rows}


@given(HISTORY, RESTARTS)
def test_ordered_aggregates_of_tables_follow_arrival(history: list[list[Row]], restarts: dict[int, int]) -> None:
    groups = defaultdict[Any, list[Any]](list)
    for key, value, _ in itertools.chain(*history):
        groups[key,].append(value)
    rows = played(lambda: TableAggregate(("key",), AGGREGATES, TABLE, "at_end"), history, restarts)
    assert found(rows, "key") == expected(groups)


@pytest.mark.parametrize(
    "window",
    [
        Tumbling(10),
        Hopping(9, 6),
        *(pytest.param(window, marks=pytest.mark.thorough) for window in (Hopping(12, 3), Hopping(20, 2))),
    ],
    ids=str,
)
@given(history=HISTORY, restarts=RESTARTS)
def test_ordered_aggregates_of_windows_follow_arrival(
    window: Tumbling | Hopping, history: list[list[Row]], restarts: dict[int, int]
) -> None:
    slide = window.slide_us if isinstance(window, Hopping) else window.size_us
    groups = defaultdict[Any, list[Any]](list)
    for key, value, at in itertools.chain(*history):
        for start in range(-120, 120, slide):
            if start <= at < start + window.size_us:
                groups[key, start + window.size_us].append(value)
    rows = played(lambda: WindowAggregate(("key",), window, AGGREGATES, WINDOWED, "at"), history, restarts)
    assert found(rows, "key", "window_end") == expected(groups)


@given(HISTORY, RESTARTS)
def test_ordered_aggregates_of_merged_sessions_follow_arrival(
    history: list[list[Row]], restarts: dict[int, int]
) -> None:
    rows_of = defaultdict[int, list[tuple[int, int, str | None]]](list)
    for number, (key, value, at) in enumerate(itertools.chain(*history)):
        rows_of[key].append((at, number, value))
    groups: dict[Any, list[str | None]] = {}
    for key, rows in rows_of.items():
        session: list[tuple[int, int, str | None]] = []
        for row in [*sorted(rows), None]:
            if session and (row is None or row[0] > session[-1][0] + 5):
                groups[key, session[-1][0] + 5] = [value for _, _, value in sorted(session, key=lambda r: r[1])]
                session = []
            session += [row] if row else []
    given_rows = played(lambda: SessionAggregate(("key",), Session(5), AGGREGATES, WINDOWED, "at"), history, restarts)
    assert found(given_rows, "key", "window_end") == expected(groups)


def test_a_late_row_within_the_lateness_comes_last() -> None:
    window = WindowAggregate(("key",), Tumbling(10), AGGREGATES, WINDOWED, "at", lateness_us=100)
    ctx, out = opened(window)
    window.on_rows(pa.record_batch({"key": [1, 1], "value": ["b", "c"], "at": [5, 6]}), 0)
    ctx.watermark = 20
    window.on_watermark(20)
    window.on_rows(pa.record_batch({"key": [1], "value": ["a"], "at": [1]}), 0)
    assert [(row["first"], row["last"], row["all"]) for row in out.rows()] == [
        ("b", "c", ["b", "c"]),
        ("b", "a", ["b", "c", "a"]),
    ]


@pytest.mark.parametrize("values", [pa.array([[1], None, [2, 3]]), pa.array([{"x": 1}, None, {"x": 2}])], ids=str)
def test_lists_and_structs_can_be_aggregated_in_order(values: pa.Array[Any]) -> None:
    kinds = (values.type, values.type, pa.list_(pa.field("item", values.type, nullable=False)))
    aggregates = [Aggregate(f, "value", f, k) for f, k in zip(("first", "last", "collect"), kinds, strict=True)]
    schema = pa.schema([pa.field(aggregate.name, aggregate.type) for aggregate in aggregates])
    table = TableAggregate((), aggregates, schema, "at_end")
    _, out = opened(table)
    table.on_rows(pa.record_batch({"value": values}), 0)
    table.on_end()
    first, _, last = values.to_pylist()
    assert out.rows() == [{"first": first, "last": last, "collect": [first, last]}]


def test_a_table_emits_only_the_lists_that_have_changed() -> None:
    schema = pa.schema([pa.field("key", pa.int64()), pa.field("all", LISTS), pa.field("kind", pa.string())])
    table = TableAggregate(("key",), AGGREGATES[2:], schema, "changes", kind="kind")
    _, out = opened(table)
    table.on_rows(pa.record_batch({"key": [1, 2], "value": pa.array(["a", "b"])}), 0)
    table.on_rows(pa.record_batch({"key": [1, 2], "value": pa.array(["c", None], pa.string())}), 0)
    assert [tuple(row.values()) for row in out.rows()] == [
        (1, ["a"], "insert"),
        (2, ["b"], "insert"),
        (1, ["a", "c"], "update"),
    ]
