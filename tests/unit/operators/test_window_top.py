"""Top-n of windows equals its definition, for any batches, snapshots and parallelism."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos_py.columns.keys import key_groups
from clonos_py.columns.views import Ints
from clonos_py.model.operators import Operator
from clonos_py.model.state import OperatorState
from clonos_py.model.tables import SortKey
from clonos_py.model.times import MAX_TIME, MIN_TIME
from clonos_py.model.windows import Hopping, Tumbling
from clonos_py.operators.keyed_rows import KeyedRows
from clonos_py.operators.window_top import WindowTop, WindowTopCombine
from tests.unit.operators.scripted import Collected, ScriptedContext, advance, opened, schema, stored

Row = tuple[str, int, int, str]
"""key, time, price, name"""

INPUT = schema(("key", pa.string()), ("at", pa.int64()), ("price", pa.int64()), ("name", pa.string()))
RESULT = schema(
    ("key", pa.string()), ("name", pa.string()), ("window_start", pa.int64()), ("window_end", pa.int64()),
    ("rank", pa.int64()),
)  # fmt: skip
BY_PRICE = (SortKey("price", descending=True),)


def batch(rows: Sequence[Row]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([dict(zip(INPUT.names, row, strict=True)) for row in rows], INPUT)


def window_top(window: Tumbling | Hopping, n: int) -> WindowTop:
    return WindowTop(("key",), window, n, BY_PRICE, RESULT, "at", "rank")


def found(out: Collected) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in out.rows()]


def test_the_first_rows_come_out_when_their_window_closes() -> None:
    operator = window_top(Tumbling(10), 2)
    ctx, out = opened(operator)
    operator.on_rows(batch([("a", 3, 5, "x"), ("a", 9, 7, "y"), ("b", 10, 1, "z"), ("a", 4, 6, "w")]), 0)
    assert advance(operator, ctx, 9) == 9
    assert found(out) == []
    advance(operator, ctx, 10)
    assert found(out) == [("a", "y", 0, 10, 1), ("a", "w", 0, 10, 2)]
    operator.on_rows(batch([("a", 9, 9, "late"), ("b", 12, 1, "later")]), 0)
    advance(operator, ctx, MAX_TIME)
    assert found(out)[2:] == [("b", "z", 10, 20, 1), ("b", "later", 10, 20, 2)]
    assert ctx.counted["late_rows"] == 1


def test_of_equal_rows_the_one_that_came_first_is_first_in_each_of_its_windows() -> None:
    operator = window_top(Hopping(20, 10), 1)
    ctx, out = opened(operator)
    operator.on_rows(batch([("a", 19, 5, "first"), ("a", 9, 5, "second")]), 0)
    advance(operator, ctx, MAX_TIME)
    assert sorted(found(out)) == [("a", "first", 0, 20, 1), ("a", "first", 10, 30, 1), ("a", "second", -10, 10, 1)]


def test_a_watermark_that_closes_no_window_does_not_scan_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []
    all_numbers = KeyedRows.all_numbers

    def noted(self: KeyedRows) -> Ints:
        looked.append(self.rows)
        return all_numbers(self)

    monkeypatch.setattr(KeyedRows, "all_numbers", noted)
    operator, successor = window_top(Tumbling(10), 1), window_top(Tumbling(10), 1)
    ctx, _ = opened(operator)
    operator.on_rows(batch([("a", 13, 5, "x"), ("a", 23, 5, "y")]), 0)
    for watermark in range(9, 20):
        advance(operator, ctx, watermark)
    assert not looked
    ctx, out = opened(successor)
    successor.restore([operator.snapshot()])
    for watermark in range(20, 30):
        advance(successor, ctx, watermark)
    assert found(out) == [("a", "x", 10, 20, 1)]
    assert len(looked) == 1
    advance(successor, ctx, 30)
    assert found(out)[1:] == [("a", "y", 20, 30, 1)]


def test_state_has_at_most_n_rows_of_a_key_and_window() -> None:
    operator = window_top(Hopping(20, 10), 1)
    opened(operator)
    for price in range(100):
        operator.on_rows(batch([("a", 5, price, "x")]), 0)
    dead = np.unpackbits(np.frombuffer(operator.snapshot().values["rows.dead"], np.uint8))
    assert sum(chunk.rows.num_rows for chunk in operator.snapshot().tables["rows"]) - int(dead.sum()) == 2


Step = list[tuple[str, int, int]] | int
"""Rows (key, time, price), or a watermark."""
histories = st.lists(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(-30, 60), st.integers(0, 3)), max_size=8)
    | st.integers(-30, 70),
    max_size=12,
)
windows = st.sampled_from([Tumbling(10), Hopping(20, 10), Hopping(15, 10), Hopping(10, 15)])


def starts(window: Tumbling | Hopping, time: int) -> list[int]:
    slide = window.slide_us if isinstance(window, Hopping) else window.size_us
    return [start for start in range(-300, 300, slide) if start <= time < start + window.size_us]


@given(histories, windows, st.integers(1, 3), st.booleans(), st.integers(0, 12), st.integers(1, 3))
def test_top_of_windows_equals_its_definition(
    history: list[Step], window: Tumbling | Hopping, n: int, combined: bool, rescale_at: int, parallelism: int
) -> None:
    combine = WindowTopCombine(("key",), window, n, BY_PRICE, "at", INPUT.names)
    _, early = opened(combine)
    outs: list[Collected] = []
    running: list[tuple[Operator, ScriptedContext]] = []

    def start(parts: list[OperatorState], tasks: int, watermark: int) -> None:
        running.clear()
        for low, high in itertools.pairwise(np.linspace(0, 128, tasks + 1).astype(int).tolist()):
            operator = window_top(window, n)
            ctx, out = opened(operator, ScriptedContext(range(low, high)))
            ctx.watermark = watermark
            operator.restore(parts)
            outs.append(out)
            running.append((operator, ctx))

    start([], 1, MIN_TIME)
    rows_of: dict[tuple[str, int], list[tuple[int, str]]] = {}
    watermark = MIN_TIME
    for number, step in enumerate([*history, MAX_TIME]):
        if number == rescale_at:
            start([stored(operator.snapshot()) for operator, _ in running], parallelism, watermark)
        if isinstance(step, int):
            watermark = max(watermark, step)
            for operator, ctx in running:
                advance(operator, ctx, watermark)
            continue
        named = [(key, at, price, f"{number}.{i}") for i, (key, at, price) in enumerate(step)]
        for key, at, price, name in named:
            for begin in starts(window, at):
                if begin + window.size_us > watermark:
                    rows_of.setdefault((key, begin), []).append((price, name))
        rows = batch(named)
        if combined:
            combine.on_rows(rows, 0)
            rows = early.batches.pop()[1]
        groups = key_groups(rows, ["key"], 128)
        for operator, ctx in running:
            operator.on_rows(rows.filter(pa.array((groups >= ctx.groups.start) & (groups < ctx.groups.stop))), 0)
    expected = [
        (key, name, begin, begin + window.size_us, rank)
        for (key, begin), priced in rows_of.items()
        for rank, (_, name) in enumerate(sorted(priced, key=lambda row: row[0], reverse=True)[:n], 1)
    ]
    assert sorted(row for out in outs for row in found(out)) == sorted(expected)
