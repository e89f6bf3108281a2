"""Aggregates over the last rows of each row give what SQL's OVER gives for the rows that were in time, however these
come: cut into batches anyhow, out of order, through restores at another parallelism."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clonos_py.columns.keys import key_groups
from clonos_py.model.aggregates import Aggregate, UserAggregate
from clonos_py.model.state import OperatorState
from clonos_py.model.times import MAX_TIME, MIN_TIME
from clonos_py.model.windows import Last, LastRows, LastSpan
from clonos_py.operators import keyed_chunks, over
from clonos_py.operators.over import Over
from tests.unit.operators.scripted import (
    ScriptedContext,
    advance,
    compacted_early,
    opened,
    read_by,
    schema,
    stored,
)

DATABASE = duckdb.connect(config={"threads": 1})
FLOAT, TEXT, WHOLE = pa.float64(), pa.string(), pa.int64()
INPUT = schema(("id", WHOLE), ("key", TEXT), ("at", WHOLE), ("x", FLOAT), ("n", WHOLE), ("word", TEXT))
JOINED = UserAggregate(
    create=str, add=lambda text, word: text + (word or "-"), merge=lambda a, b: a + b, result=lambda text: text
)
AGGREGATES = {
    Aggregate("count", None, "rows", WHOLE): "count(*) OVER w",
    Aggregate("count", "x", "values", WHOLE): "count(x) OVER w",
    Aggregate("sum", "x", "total", FLOAT): "sum(x) OVER w",
    Aggregate("mean", "x", "mean", FLOAT): "avg(x) OVER w",
    Aggregate("sum", "n", "whole", WHOLE): "sum(n) OVER w",
    Aggregate("mean", "n", "share", FLOAT): "avg(n) OVER w",
    Aggregate("min", "x", "least", FLOAT): "coalesce(min(x) FILTER (NOT isnan(x)) OVER w, min(x) OVER w)",
    Aggregate("max", "x", "most", FLOAT): "coalesce(max(x) FILTER (NOT isnan(x)) OVER w, max(x) OVER w)",
    Aggregate("min", "word", "word", TEXT): "min(word) OVER w",
    Aggregate("count_distinct", "n", "different", WHOLE): "count(DISTINCT n) OVER w",
    Aggregate("first", "n", "first", WHOLE): 'arg_min(n, id + 1000 * "at") FILTER (n IS NOT NULL) OVER w',
    Aggregate("last", "word", "last", TEXT): 'arg_max(word, id + 1000 * "at") FILTER (word IS NOT NULL) OVER w',
    Aggregate("var", "n", "variance", FLOAT, option=1): "var_samp(n) OVER w",
    Aggregate("std", "n", "deviation", FLOAT, option=0): "stddev_pop(n) OVER w",
    Aggregate("approx_quantile", "n", "quarter", FLOAT, option=0.25): "quantile_disc(n, 0.25) OVER w",
    Aggregate("approx_count_distinct", "word", "words", WHOLE): "count(DISTINCT word) OVER w",
    Aggregate("collect", "n", "all", pa.list_(WHOLE)): 'list(("at", id, n)) FILTER (n IS NOT NULL) OVER w',
    Aggregate("user", "word", "joined", TEXT, JOINED): "list((\"at\", id, coalesce(nullif(word, ''), '-'))) OVER w",
}
RESULT = pa.schema([INPUT.field("id"), INPUT.field("at"), *(pa.field(f"r_{a.name}", a.type) for a in AGGREGATES)])
NAMED = [replace(aggregate, name=f"r_{aggregate.name}") for aggregate in AGGREGATES]

Row = tuple[str | None, int | None, float | None, int | None, str | None]
Step = list[Row] | int
"""Rows without their ids, or a watermark."""

keys = st.sampled_from(["a", "b", None])
floats = st.none() | st.sampled_from([math.nan, math.inf, -0.0]) | st.integers(-40, 40).map(lambda n: n / 4)
rows = st.tuples(
    keys,
    st.none() | st.integers(-20, 40),
    floats,
    st.none() | st.integers(-5, 5),
    st.none() | st.text("ab", max_size=3),
)
histories = st.lists(st.lists(rows, max_size=8) | st.integers(-20, 45), max_size=14)
lasts = st.integers(0, 25).map(LastSpan) | st.integers(1, 6).map(LastRows)


@pytest.fixture(autouse=True, scope="module")
def _state_is_compacted_early() -> Iterator[None]:
    with compacted_early((over, "_FEW_ROWS", 2), (over, "_DUE_ROWS", 3), (keyed_chunks, "_FAN_IN", 2)):
        yield


def operator(last: Last, made: Sequence[Aggregate]) -> Over:
    names = ["id", "at", *(aggregate.name for aggregate in made)]
    return Over(("key",), last, made, pa.schema([RESULT.field(name) for name in names]), "at")


class Instances:
    def __init__(self, last: Last, made: Sequence[Aggregate] = NAMED) -> None:
        self.last, self.made = last, made
        self.emitted: list[dict[str, Any]] = []
        self.counted: dict[str, int] = {}
        self.start(1, [])

    def start(self, count: int, parts: list[OperatorState]) -> None:
        self.running = []
        for number in range(count):
            made, groups = operator(self.last, self.made), range(128 * number // count, 128 * (number + 1) // count)
            ctx, out = opened(made, ScriptedContext(groups))
            made.restore(read_by(parts, ctx.groups))
            self.running.append((made, ctx, out))

    def rescale(self, count: int) -> None:
        self.start(count, [stored(made.snapshot()) for made, _, _ in self.running])

    def feed(self, batch: pa.RecordBatch) -> None:
        groups = key_groups(batch, ["key"], 128)
        for made, ctx, _ in self.running:
            made.on_rows(batch.filter(pa.array((groups >= ctx.groups.start) & (groups < ctx.groups.stop))), 0)
            for name, amount in ctx.counted.items():
                self.counted[name] = self.counted.get(name, 0) + amount
            ctx.counted.clear()

    def advance(self, watermark: int) -> None:
        for made, ctx, out in self.running:
            advance(made, ctx, watermark)
            taken = out.take()
            assert [row["at"] for row in taken] == sorted(row["at"] for row in taken)
            self.emitted += taken


def batch_of(rows: list[Any]) -> pa.RecordBatch:
    columns = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in INPUT]
    return pa.record_batch([pa.array(c, f.type) for c, f in zip(columns, INPUT, strict=True)], schema=INPUT)


def by_duckdb(last: Last, rows: list[Any]) -> dict[int, tuple[Any, ...]]:
    DATABASE.register("given", pa.Table.from_batches([batch_of(rows)]))
    frame = (
        f'ORDER BY "at" RANGE BETWEEN {last.span_us} PRECEDING AND CURRENT ROW'
        if isinstance(last, LastSpan)
        else f'ORDER BY "at", id ROWS BETWEEN {last.rows - 1} PRECEDING AND CURRENT ROW'
    )
    asked = f"SELECT id, {', '.join(AGGREGATES.values())} FROM given WINDOW w AS (PARTITION BY key {frame})"
    return {
        row[0]: comparable([*row[1:-2], in_order(row[-2]), "".join(in_order(row[-1]))])
        for row in DATABASE.execute(asked).fetchall()
    }


def in_order(found: list[tuple[int, int, Any]] | None) -> list[Any]:
    return [value for _, _, value in sorted(found or [])]


def comparable(row: Any) -> tuple[Any, ...]:
    return tuple(
        ("NaN" if math.isnan(value) else round(value, 9)) if isinstance(value, float) else value for value in row
    )


def run(last: Last, history: list[Step], rescale_at: int, parallelism: int) -> tuple[Instances, list[Any], int]:
    """The instances at the end, the rows that were in time, and how many were late."""
    instances, timely, late, reached, number = Instances(last), list[Any](), 0, MIN_TIME, 0
    for index, step in enumerate([*history, MAX_TIME]):
        if index == rescale_at:
            instances.rescale(parallelism)
        if isinstance(step, int):
            reached = max(reached, step)
            instances.advance(reached)
            continue
        rows = [(number + nth, *row) for nth, row in enumerate(step)]
        number += len(rows)
        instances.feed(batch_of(rows))
        timed = [(row[2], row) for row in rows if row[2] is not None]
        timely += [row for at, row in timed if at >= reached]
        late += sum(at < reached for at, _ in timed)
    return instances, timely, late


@settings(max_examples=120)
@given(lasts, histories, st.integers(0, 14), st.sampled_from([1, 3]))
def test_results_equal_duckdb(last: Last, history: list[Step], rescale_at: int, parallelism: int) -> None:
    instances, timely, late = run(last, history, rescale_at, parallelism)
    assert len(instances.emitted) == len(timely)
    assert instances.counted.get("late_rows", 0) == late
    found = {row["id"]: comparable(row[f"r_{a.name}"] for a in AGGREGATES) for row in instances.emitted}
    assert found == by_duckdb(last, timely)


@settings(max_examples=40)
@given(
    st.integers(5, 40).map(LastSpan) | st.integers(3, 9).map(LastRows),
    st.lists(st.tuples(st.floats(-1e6, 1e6), st.sampled_from([0, 1, 1, 2, 30])), min_size=9, max_size=60),
    st.lists(st.integers(1, 6), min_size=1),
)
def test_sums_of_floats_are_the_same_to_the_last_bit(
    last: Last, values: list[tuple[float, int]], sizes: list[int]
) -> None:
    """However rows are cut into batches, and whatever is left of the state when it is restored."""
    ats = itertools.accumulate(gap for _, gap in values)
    given_rows: list[Row] = [("a", at, value, None, None) for at, (value, _) in zip(ats, values, strict=True)]
    total = [aggregate for aggregate in NAMED if aggregate.name == "r_total"]
    whole, parted, start = Instances(last, total), Instances(last, total), 0
    whole.feed(batch_of([(number, *row) for number, row in enumerate(given_rows)]))
    whole.advance(MAX_TIME)
    for size in itertools.cycle(sizes):
        some = given_rows[start : start + size]
        if not some:
            break
        parted.feed(batch_of([(start + nth, *row) for nth, row in enumerate(some)]))
        parted.advance(some[-1][1] or 0)
        if size % 2:
            parted.rescale(1)
        start += size
    parted.advance(MAX_TIME)
    assert [row["r_total"] for row in parted.emitted] == [row["r_total"] for row in whole.emitted]


def test_a_key_that_was_ahead_before_a_change_of_parallelism_drops_late_rows_as_before() -> None:
    instances = Instances(LastSpan(20))
    instances.rescale(2)
    (ahead, ctx, _), _ = instances.running
    advance(ahead, ctx, 10)
    instances.rescale(1)
    words = [f"key {number}" for number in range(20)]
    rows = batch_of([(number, key, 5, 1.0, 1, "") for number, key in enumerate(words)])
    instances.feed(rows)
    instances.advance(MAX_TIME)
    behind = np.flatnonzero(key_groups(rows, ["key"], 128) >= 64).tolist()
    assert 0 < len(behind) < 20
    assert [row["id"] for row in instances.emitted] == behind


def test_state_holds_no_more_rows_than_later_ones_may_ask_for() -> None:
    for last in (LastSpan(50), LastRows(5)):
        instances = Instances(last, NAMED[:3])
        for start in range(0, 300, 20):
            instances.feed(batch_of([(at, "ab"[at % 2], at, 1.0, 1, "") for at in range(start, start + 20)]))
            instances.advance(start)
        ((made, _, _),) = instances.running
        assert sum(chunk.rows.num_rows for chunk in made.snapshot().tables["rows"]) < 150
