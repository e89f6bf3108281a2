"""Session windows: which rows belong together, when a session is emitted, and how late rows are handled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos_py.columns.grouping import group_integers
from clonos_py.model.aggregates import Aggregate
from clonos_py.model.times import MAX_TIME
from clonos_py.model.windows import Session
from clonos_py.operators.due_queue import DueQueue
from clonos_py.operators.intervals import merge_intervals
from clonos_py.operators.sessions import SessionAggregate, SessionCombine
from clonos_py.operators.window_operator import LATE_PORT
from clonos_py.operators.windows import combined_schema
from tests.unit.operators.scripted import ScriptedContext, advance, compacted_early, opened, stored

GAP = 5
AGGREGATES = (Aggregate("count", None, "rows", pa.int64()), Aggregate("sum", "value", "total", pa.int64()))
NAMES = {
    "key": pa.string(),
    "window_start": pa.int64(),
    "window_end": pa.int64(),
    "rows": pa.int64(),
    "total": pa.int64(),
}
INPUT = pa.schema({"key": pa.string(), "value": pa.int64(), "at": pa.int64()}.items())  # type: ignore[arg-type]
RESULT = pa.schema(NAMES.items())  # type: ignore[arg-type]

Row = tuple[str | None, int, int]
Found = tuple[str | None, int, int, int, int]
ROWS: st.SearchStrategy[list[Row]] = st.lists(
    st.tuples(st.sampled_from(["a", "b", None]), st.integers(0, 9), st.integers(0, 60)), max_size=12
)
STEPS = st.lists(st.tuples(ROWS, st.integers(0, 70)), max_size=6)


@pytest.fixture(autouse=True, scope="module")
def _state_is_compacted_early() -> Iterator[None]:
    with compacted_early():
        yield


def batch(rows: list[Row]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([dict(zip(INPUT.names, row, strict=True)) for row in rows], INPUT)


def aggregate(**settings: Any) -> SessionAggregate:
    return SessionAggregate(("key",), Session(GAP), AGGREGATES, RESULT, "at", **settings)


def found(rows: list[dict[str, Any]]) -> list[Found]:
    return [cast(Found, tuple(row.values())) for row in rows]


def in_order(rows: list[Found]) -> list[Found]:
    return sorted(rows, key=repr)


def merged(sessions: list[Found]) -> list[Found]:
    """The sessions of one key, those that overlap or touch joined."""
    result: list[Found] = []
    for key, start, end, rows, total in sorted(sessions, key=lambda s: s[1:]):
        if result and start <= result[-1][2]:
            _, first, last, n, t = result.pop()
            result.append((key, first, max(last, end), n + rows, t + total))
        else:
            result.append((key, start, end, rows, total))
    return result


class Reference:
    """Reference sessions: batch by batch, one row at a time."""

    def __init__(self, lateness: int) -> None:
        self.lateness, self.reached = lateness, -1_000
        self.live: dict[str | None, list[Found]] = {}
        self.out: list[Found] = []
        self.late = 0

    def on_rows(self, rows: list[Row]) -> None:
        for key in sorted({key for key, _, _ in rows}, key=repr):
            fresh = merged([(k, at, at + GAP, 1, value) for k, value, at in rows if k == key])
            live = self.live.setdefault(key, [])
            taken = [s for s in fresh if s[2] > self.reached - self.lateness or any(overlap(s, o) for o in live)]
            self.late += sum(s[3] for s in fresh if s not in taken)
            self.live[key] = merged(live + taken)
            self.out += [s for s in self.live[key] if s[2] <= self.reached and any(overlap(s, t) for t in taken)]

    def on_watermark(self, watermark: int) -> None:
        passed = watermark if watermark == MAX_TIME else watermark - 1
        before, self.reached = self.reached, max(self.reached, passed)
        for key, live in self.live.items():
            self.out += [s for s in live if before < s[2] <= self.reached]
            self.live[key] = [s for s in live if s[2] > self.reached - self.lateness]


def overlap(left: Found, right: Found) -> bool:
    return left[1] <= right[2] and right[1] <= left[2]


@given(STEPS, st.integers(0, 12), st.booleans())
def test_sessions_equal_those_of_the_reference(
    steps: list[tuple[list[Row], int]], lateness: int, combined: bool
) -> None:
    operator, reference = aggregate(lateness_us=lateness, combined=combined), Reference(lateness)
    combine = SessionCombine(("key",), Session(GAP), AGGREGATES, "at")
    (ctx, out), (_, partial) = opened(operator), opened(combine)
    reached = -1_000
    for rows, watermark in [*steps, ([], MAX_TIME)]:
        combine.on_rows(batch(rows), 0)
        for _, sessions in partial.batches:
            assert sessions.schema.equals(combined_schema(INPUT, ("key",), Session(GAP), AGGREGATES))
        inputs = [sessions for _, sessions in partial.batches] if combined else [batch(rows)]
        partial.batches.clear()
        for rows_in in inputs:
            operator.on_rows(rows_in, 0)
        reference.on_rows(rows)
        reference.on_watermark(watermark)
        reached = max(reached, watermark)
        advance(operator, ctx, reached)
        assert in_order(found(out.take())) == in_order(reference.out)
        reference.out.clear()
    assert ctx.counted["late_rows"] == reference.late
    if not combined:
        assert len(out.rows(LATE_PORT)) == reference.late


def test_rows_exactly_a_gap_apart_are_one_session_and_those_further_apart_are_two() -> None:
    operator = aggregate()
    ctx, out = opened(operator)
    operator.on_rows(batch([("a", 1, 0), ("a", 1, 4), ("a", 1, 9), ("a", 1, 15)]), 0)
    advance(operator, ctx, MAX_TIME)
    assert found(out.rows()) == [("a", 0, 14, 3, 3), ("a", 15, 20, 1, 1)]


def test_a_row_at_the_end_of_a_session_joins_it_although_the_watermark_is_there() -> None:
    """The watermark excludes earlier rows; one of just that time may come."""
    operator = aggregate()
    ctx, out = opened(operator)
    operator.on_rows(batch([("a", 1, 0)]), 0)
    advance(operator, ctx, 5)
    operator.on_rows(batch([("a", 1, 5)]), 0)
    advance(operator, ctx, 10)
    assert out.take() == []
    advance(operator, ctx, 11)
    assert found(out.take()) == [("a", 0, 10, 2, 2)]


def test_a_row_can_merge_two_sessions() -> None:
    operator = aggregate()
    ctx, out = opened(operator)
    for at in (0, 8, 4):
        operator.on_rows(batch([("a", at, at)]), 0)
    advance(operator, ctx, 13)
    assert out.take() == []
    advance(operator, ctx, 14)
    assert found(out.take()) == [("a", 0, 13, 3, 12)]


@given(STEPS, st.integers(0, 6), st.integers(0, 12))
def test_a_restored_operator_gives_the_same_results(
    steps: list[tuple[list[Row], int]], cut: int, lateness: int
) -> None:
    first, second = aggregate(lateness_us=lateness), aggregate(lateness_us=lateness)
    (ctx, out), (other_ctx, other_out) = opened(first), opened(second)
    reached = -1_000
    for position, (rows, watermark) in enumerate([*steps, ([], MAX_TIME)]):
        if position == cut:
            second.restore([stored(first.snapshot())])
            out.batches.clear()
        reached = max(reached, watermark)
        first.on_rows(batch(rows), 0)
        advance(first, ctx, reached)
        if position >= cut:
            second.on_rows(batch(rows), 0)
            advance(second, other_ctx, reached)
    if cut <= len(steps):
        assert [b.to_pylist() for _, b in out.batches] == [b.to_pylist() for _, b in other_out.batches]


def test_state_moves_to_another_parallelism() -> None:
    first = aggregate()
    opened(first)
    first.on_rows(batch([(f"key {i}", 1, 1) for i in range(50)]), 0)
    first.on_rows(batch([(f"key {i}", 1, 2) for i in range(20)]), 0)
    results: list[Found] = []
    for groups in (range(0, 40), range(40, 128)):
        second = aggregate()
        ctx, out = opened(second, ScriptedContext(groups))
        second.restore([stored(first.snapshot())])
        advance(second, ctx, MAX_TIME)
        assert 0 < len(out.rows()) < 50
        results += found(out.rows())
    expected = [(f"key {i}", 1, 7 if i < 20 else 6, 2 if i < 20 else 1, 2 if i < 20 else 1) for i in range(50)]
    assert in_order(results) == in_order(cast(list[Found], expected))


class WallClock:
    """Processing time as a test sets it."""

    us = 1_000

    def now(self) -> int:
        return self.us


def test_processing_time_sessions_end_by_timer() -> None:
    operator = SessionAggregate(("key",), Session(GAP, True), AGGREGATES, RESULT)
    clock, ctx = WallClock(), ScriptedContext()
    ctx.time = cast(Any, clock)
    _, out = opened(operator, ctx)
    operator.on_rows(batch([("a", 1, 0), ("b", 1, 0)]), 0)
    clock.us = 1_003
    operator.on_rows(batch([("a", 2, 0)]), 0)
    assert ctx.timers == {1_005, 1_008}
    restored = SessionAggregate(("key",), Session(GAP, True), AGGREGATES, RESULT)
    other, again = opened(restored)
    restored.restore([stored(operator.snapshot())])
    assert other.timers == {1_005, 1_008}
    for at in (1_005, 1_008):
        operator.on_timer(at)
        restored.on_timer(at)
    assert found(out.rows()) == found(again.rows()) == [("b", 1_000, 1_005, 1, 1), ("a", 1_000, 1_008, 2, 3)]


def test_state_does_not_grow_with_the_number_of_updates() -> None:
    operator = aggregate()
    ctx, out = opened(operator)
    keys = np.array([f"key {i}" for i in range(1_000)])
    for at in range(50):
        rows = {"key": pa.array(keys), "value": pa.array(np.ones(1_000, np.int64)), "at": pa.array(np.full(1_000, at))}
        operator.on_rows(pa.record_batch(rows), 0)
        assert sum(chunk.rows.num_rows for chunk in operator.snapshot().tables["rows"]) < 20_000
    advance(operator, ctx, MAX_TIME)
    assert {row[1:] for row in found(out.rows())} == {(0, 49 + GAP, 50, 50)}
    assert len(out.rows()) == 1_000


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 30), st.integers(1, 9)), max_size=25))
def test_intervals_of_any_length_merge(intervals: list[tuple[int, int, int]]) -> None:
    keys, starts, lengths = (np.array([row[i] for row in intervals], np.int64) for i in range(3))
    groups, merged_starts, ends = merge_intervals(group_integers(keys), starts, starts + lengths)
    expected = [s for key in range(4) for s in merged([(str(k), a, a + n, 1, 0) for k, a, n in intervals if k == key])]
    assert merged_starts.tolist() == [s[1] for s in expected]
    assert ends.tolist() == [s[2] for s in expected]
    assert np.bincount(groups.ids, minlength=groups.size).tolist() == [s[3] for s in expected]
    assert keys[groups.first].tolist() == [int(str(s[0])) for s in expected]


@given(st.lists(st.tuples(st.lists(st.integers(0, 50), max_size=9), st.integers(0, 50)), max_size=9))
def test_the_queue_returns_due_rows_once(steps: list[tuple[list[int], int]]) -> None:
    queue, waiting, pushed = DueQueue(), dict[int, int](), 0
    for times, until in steps:
        numbers = np.arange(pushed, pushed + len(times))
        queue.push(np.array(times, np.int64), numbers)
        waiting.update(zip(numbers.tolist(), times, strict=True))
        pushed += len(times)
        due = sorted(row for row, time in waiting.items() if time <= until)
        assert queue.pop(until).tolist() == due
        for row in due:
            del waiting[row]
