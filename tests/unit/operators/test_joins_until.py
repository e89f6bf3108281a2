"""Joins while a left row lasts: right rows from its time on, up to the time in one of its columns."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from clonos_py.model.times import MAX_TIME
from clonos_py.operators import history_join
from clonos_py.operators.history_join import HistoryJoin
from tests.unit.operators.join_histories import COLUMNS, PAIR, Instances, pairs
from tests.unit.operators.scripted import advance, opened, schema

Row = tuple[int | None, int | None, int | None, str]
"""key, time, end, name"""

INPUT = schema(("key", pa.int64()), ("at", pa.int64()), ("end", pa.int64()), ("name", pa.string()))
Step = tuple[int, list[tuple[int, int, int]]] | int
"""Rows (key, time, how long it lasts) of a side, or a watermark."""

rows_of = st.lists(st.tuples(st.integers(0, 3), st.integers(-30, 60), st.integers(-5, 40)), max_size=6)
histories = st.lists(st.tuples(st.integers(0, 1), rows_of) | st.integers(-30, 70), max_size=14)


def batch(rows: Sequence[Row]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([dict(zip(INPUT.names, row, strict=True)) for row in rows], INPUT)


def until_join() -> HistoryJoin:
    return HistoryJoin(["key"], ["key"], COLUMNS, PAIR, (0, "end"), "at", "at")


def test_the_right_row_lies_between_the_time_and_the_end_of_the_left_row() -> None:
    for first in (0, 1):
        operator = until_join()
        _, out = opened(operator)
        sides = [
            batch([(1, 10, 20, "l"), (1, 15, 14, "none"), (2, 10, 20, "other")]),
            batch([(1, at, None, f"r{at}") for at in (9, 10, 15, 20, 21)]),
        ]
        operator.on_rows(sides[first], first)
        operator.on_rows(sides[1 - first], 1 - first)
        assert sorted(pairs(out)) == [("l", "r10"), ("l", "r15"), ("l", "r20")]


def test_a_left_row_without_an_end_matches_nothing_and_is_counted() -> None:
    operator = until_join()
    ctx, out = opened(operator)
    operator.on_rows(batch([(1, 10, None, "l")]), 0)
    operator.on_rows(batch([(1, 10, None, "r")]), 1)
    assert pairs(out) == []
    assert ctx.counted == {"null_time_rows": 1}


def test_each_side_drops_rows_that_no_row_in_time_can_match() -> None:
    operator = until_join()
    ctx, _ = opened(operator)
    for start in range(0, 40_000, 10_000):
        for side in (0, 1):
            operator.on_rows(batch([(at, at, at + 5_000, "a") for at in range(start, start + 10_000)]), side)
        advance(operator, ctx, start + 10_000)
    tables = operator.snapshot().tables
    kept = {side: sum(chunk.rows.num_rows for chunk in tables[side]) for side in ("left", "right")}
    assert kept["left"] <= 15_000
    assert kept["right"] <= 10_000


@given(histories, st.integers(0, 14), st.integers(1, 3))
def test_joins_until_an_end_equal_their_definition(history: list[Step], rescale_at: int, parallelism: int) -> None:
    few, history_join._FEW_ROWS = history_join._FEW_ROWS, 0
    try:
        instances = Instances(until_join)
        seen: tuple[list[tuple[int, int, int, str]], ...] = ([], [])
        watermark = -1_000
        for number, step in enumerate(history):
            if number == rescale_at:
                instances.rescale(parallelism, watermark)
            if isinstance(step, int):
                watermark = max(watermark, step)
                instances.advance(watermark)
                continue
            side, rows = step
            named = [(key, at, at + lasts, f"{number}.{i}") for i, (key, at, lasts) in enumerate(rows)]
            seen[side].extend(row for row in named if row[1] >= watermark)
            instances.feed(batch(named), side)
        instances.advance(MAX_TIME)
    finally:
        history_join._FEW_ROWS = few
    expected = [(a[3], b[3]) for a in seen[0] for b in seen[1] if a[0] == b[0] and a[1] <= b[1] <= a[2]]
    assert instances.pairs() == sorted(expected)
