"""Rows leave in the order of event time, whatever their order, their batches and the parallelism; limits count."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from clonos_py.columns.keys import key_groups
from clonos_py.model.times import MAX_TIME
from clonos_py.operators.limit import Limit, LimitCombine
from clonos_py.operators.sort import Sort
from tests.unit.operators.scripted import Collected, ScriptedContext, advance, opened, read_by, schema, stored

OUT = schema(("id", pa.int64()), ("key", pa.string()))
Row = tuple[str | None, int | None]
ROWS = st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.one_of(st.none(), st.integers(0, 60))), max_size=8)
HISTORY = st.lists(ROWS | st.integers(0, 70), max_size=10)
RESTARTS = st.dictionaries(st.integers(1, 10), st.integers(1, 3), max_size=3)


def batch(rows: list[Row], first: int) -> pa.RecordBatch:
    values = [{"id": number, "key": key, "at": at} for number, (key, at) in enumerate(rows, first)]
    return pa.RecordBatch.from_pylist(values, schema=OUT.append(pa.field("at", pa.int64())))


def played(history: list[list[Row] | int], pass_late: bool, restarts: dict[int, int]) -> list[tuple[int, int]]:
    """(step, row) as they leave, each instance in turn, with the number of instances changed before some steps."""
    running: list[tuple[Sort, ScriptedContext, Collected]] = []
    left: list[tuple[int, int]] = []
    count, watermark = 0, -1
    for number, step in enumerate([*history, MAX_TIME]):
        if number == 0 or number in restarts:
            parts = [stored(operator.snapshot()) for operator, _, _ in running]
            running = []
            for low, high in itertools.pairwise(np.linspace(0, 128, restarts.get(number, 1) + 1).astype(int).tolist()):
                operator = Sort(("key",), "at", OUT, pass_late)
                ctx, out = opened(operator, ScriptedContext(range(low, high)))
                ctx.watermark = watermark
                operator.restore(read_by(parts, ctx.groups))
                running.append((operator, ctx, out))
        if isinstance(step, list):
            rows, count = batch(step, count), count + len(step)
            groups = key_groups(rows, ["key"], 128)
            for operator, ctx, _ in running:
                operator.on_rows(rows.filter(pa.array((groups >= ctx.groups.start) & (groups < ctx.groups.stop))), 0)
        elif step > watermark:
            watermark = step
            for operator, ctx, _ in running:
                assert advance(operator, ctx, watermark) == watermark
        for _, ctx, out in running:
            assert all(key_groups(rows, ["key"], 128)[0] in ctx.groups for _, rows in out.batches if rows.num_rows)
            left += [(number, row["id"]) for row in out.take()]
    return left


def expected(history: list[list[Row] | int], pass_late: bool) -> tuple[dict[str | None, list[int]], set[int]]:
    """By key the rows in their order, and the rows that were late."""
    waiting: dict[str | None, list[tuple[int, int]]] = {}
    found: dict[str | None, list[int]] = {}
    late, numbers, watermark = set(), itertools.count(), -1
    for step in [*history, MAX_TIME]:
        if isinstance(step, int):
            watermark = max(watermark, step)
            for key, rows in waiting.items():
                due = sorted(row for row in rows if row[0] < watermark or watermark == MAX_TIME)
                found.setdefault(key, []).extend(number for _, number in due)
                waiting[key] = [row for row in rows if row not in due]
            continue
        for key, at in step:
            number = next(numbers)
            if at is not None and at < watermark:
                late.add(number)
                if pass_late:
                    found.setdefault(key, []).append(number)
            elif at is not None:
                waiting.setdefault(key, []).append((at, number))
    return {key: rows for key, rows in found.items() if rows}, late


@given(HISTORY, st.booleans(), RESTARTS)
def test_the_rows_of_a_key_leave_in_the_order_of_event_time(
    history: list[list[Row] | int], pass_late: bool, restarts: dict[int, int]
) -> None:
    keys = [key for step in history if isinstance(step, list) for key, _ in step]
    by_key: dict[Any, list[int]] = {}
    for _, row in played(history, pass_late, restarts):
        by_key.setdefault(keys[row], []).append(row)
    assert by_key == expected(history, pass_late)[0]


@given(HISTORY, RESTARTS)
def test_late_rows_are_counted_also_if_they_pass(history: list[list[Row] | int], restarts: dict[int, int]) -> None:
    dropped = {row for _, row in played(history, False, restarts)}
    passed = {row for _, row in played(history, True, restarts)}
    late = expected(history, False)[1]
    assert dropped.isdisjoint(late)
    assert passed == dropped | late


def test_rows_of_one_instance_leave_in_one_order() -> None:
    operator = Sort((), "at", OUT)
    ctx, out = opened(operator)
    operator.on_rows(batch([("a", 5), ("b", 3), ("a", 3), ("b", 9), ("a", 3)], 0), 0)
    advance(operator, ctx, 6)
    assert [row["id"] for row in out.take()] == [1, 2, 4, 0]
    assert ctx.counted == {}
    operator.on_rows(batch([("a", 5), ("a", None)], 5), 0)
    assert ctx.counted == {"late_rows": 1, "null_time_rows": 1}


@given(st.lists(ROWS, max_size=6), st.integers(1, 12), st.integers(0, 6), st.booleans())
def test_a_limit_passes_the_first_rows(batches: list[list[Row]], n: int, restart: int, combined: bool) -> None:
    operator, early = Limit(n), LimitCombine(n, ["id"])
    _, out = opened(operator)
    _, before = opened(early)
    total = 0
    for number, rows in enumerate(batches):
        if number == restart:
            part = stored(operator.snapshot())
            operator = Limit(n)
            operator.open(*opened(Limit(n))[:1], out)
            operator.restore([part])
        early.on_rows(batch(rows, total), 0)
        total += len(rows)
        ((_, first),) = before.batches
        before.batches.clear()
        operator.on_rows(first if combined else batch(rows, total - len(rows)), 0)
    assert [row["id"] for row in out.rows()] == list(range(min(n, total)))
