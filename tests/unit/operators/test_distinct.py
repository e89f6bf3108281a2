"""Deduplication: the first row of a key passes, and with a ttl another one after it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos_py.columns.keys import key_groups
from clonos_py.model.times import LONGEST_US, MAX_TIME
from clonos_py.operators.distinct import Distinct, DistinctCombine
from tests.unit.operators.scripted import (
    Collected,
    ScriptedContext,
    advance,
    compacted_early,
    opened,
    read_by,
    schema,
    stored,
)

SCHEMA = schema(("key", pa.string()), ("id", pa.int64()))
Row = tuple[str | None, int]
ROWS = st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.integers(0, 60)), max_size=8)
HISTORY = st.lists(ROWS | st.integers(0, 70), max_size=10)


@pytest.fixture(autouse=True, scope="module")
def _state_is_compacted_early() -> Iterator[None]:
    with compacted_early():
        yield


def batch(rows: list[Row], first: int) -> pa.RecordBatch:
    keys, times = [key for key, _ in rows], [at for _, at in rows]
    ids = pa.array(range(first, first + len(rows)), pa.int64())
    return pa.record_batch({"key": pa.array(keys, pa.string()), "id": ids, "at": pa.array(times, pa.int64())})


def played(history: list[list[Row] | int], ttl: int | None, restarts: dict[int, int], combine: bool) -> list[int]:
    """The rows that pass, by their place in the history, in the order of time."""
    running: list[tuple[Distinct, ScriptedContext, Collected]] = []
    passed: list[int] = []
    count, watermark = 0, -1
    for number, step in enumerate([*history, MAX_TIME]):
        if number == 0 or number in restarts:
            parts = [stored(operator.snapshot()) for operator, _, _ in running]
            running = []
            for low, high in itertools.pairwise(np.linspace(0, 128, restarts.get(number, 1) + 1).astype(int).tolist()):
                operator = Distinct(("key",), SCHEMA, ttl, "at")
                ctx, out = opened(operator, ScriptedContext(range(low, high)))
                ctx.watermark = watermark
                operator.restore(read_by(parts, ctx.groups))
                running.append((operator, ctx, out))
        if isinstance(step, int):
            if step > watermark:
                watermark = step
                for operator, ctx, _ in running:
                    advance(operator, ctx, watermark)
            continue
        rows, count = batch(step, count), count + len(step)
        if combine:
            early = DistinctCombine(("key",), ["key", "id", "at"])
            _, before = opened(early)
            early.on_rows(rows, 0)
            rows = before.batches[0][1]
        groups = key_groups(rows, ["key"], 128)
        for operator, ctx, _ in running:
            operator.on_rows(rows.filter(pa.array((groups >= ctx.groups.start) & (groups < ctx.groups.stop))), 0)
        passed += sorted(row["id"] for _, _, out in running for row in out.take())
    return passed


def expected(history: list[list[Row] | int], ttl: int | None) -> list[int]:
    last: dict[str | None, int] = {}
    passed: list[int] = []
    watermark, number = -1, -1
    for step in history:
        if isinstance(step, int):
            watermark = max(watermark, step)
            continue
        for key, at in step:
            number += 1
            now = max(at, watermark)
            if key not in last or (ttl is not None and now - last[key] >= ttl):
                last[key] = now
                passed.append(number)
    return passed


@given(HISTORY, st.sampled_from([None, 1, 5, 20]), st.dictionaries(st.integers(1, 10), st.integers(1, 3), max_size=3))
def test_the_rows_that_pass_depend_only_on_the_input(
    history: list[list[Row] | int], ttl: int | None, restarts: dict[int, int]
) -> None:
    assert played(history, ttl, restarts, combine=False) == expected(history, ttl)


@given(HISTORY)
def test_combining_before_the_shuffle_does_not_change_the_output(history: list[list[Row] | int]) -> None:
    assert played(history, None, {}, combine=True) == expected(history, None)


def test_only_keys_are_kept_and_at_most_for_the_ttl() -> None:
    distinct = Distinct(("key",), SCHEMA, 100, "at")
    ctx, _ = opened(distinct)
    distinct.on_rows(batch([("a", 0), ("b", 90), ("a", 5)], 0), 0)
    chunks: Any = distinct.snapshot().tables["rows"]
    assert [chunk.rows.schema.names for chunk in chunks] == [["key", "~group", "~passed"]]
    advance(distinct, ctx, 120)
    assert distinct._known.live_row_count == 1
    advance(distinct, ctx, MAX_TIME)
    assert distinct._known.live_row_count == 0


def test_a_row_without_an_event_time_is_counted() -> None:
    distinct = Distinct(("key",), SCHEMA, 100, "at")
    ctx, out = opened(distinct)
    distinct.on_rows(pa.record_batch({"key": ["a", "a"], "id": [1, 2], "at": pa.array([None, 3], pa.int64())}), 0)
    assert [row["id"] for row in out.rows()] == [2]
    assert ctx.counted["null_time_rows"] == 1


@pytest.mark.parametrize("ttl", [1, LONGEST_US])
def test_a_row_passes_again_after_the_longest_time_there_is(ttl: int) -> None:
    operator = Distinct(("key",), SCHEMA, ttl, "at")
    _, out = opened(operator)
    operator.on_rows(batch([("a", -(2**62)), ("a", 2**62)], 0), 0)
    assert [row["id"] for row in out.rows()] == [0, 1]
