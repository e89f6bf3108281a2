"""Batches are cut by count and by logged timers, however rows come, and after any restarts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from clonos_py.model.times import MAX_TIME, MIN_TIME
from clonos_py.operators.gathered_batches import MapGatheredBatches
from tests.unit.operators.scripted import Collected, ScriptedContext, advance, opened, read_by, schema, stored

ROWS = schema(("id", pa.int64()))
RESULT = schema(("id", pa.int64()), ("of", pa.int64()))
WAIT_US = 500
STEPS = st.lists(st.tuples(st.sampled_from(["rows", "watermark", "time", "restart"]), st.integers(0, 7)), max_size=14)


def sized(rows: pa.RecordBatch) -> pa.RecordBatch:
    """With each row the size of its batch."""
    return rows.append_column("of", pa.array([rows.num_rows] * rows.num_rows, pa.int64()))


def numbers(first: int, count: int) -> pa.RecordBatch:
    return pa.record_batch({"id": pa.array(range(first, first + count), pa.int64())})


def operator(function: Callable[..., Any] = sized, rows: int = 4) -> MapGatheredBatches:
    return MapGatheredBatches(function, RESULT, rows, WAIT_US)


class Played:
    """The operator in a task whose clock and restarts the test decides."""

    def __init__(self, rows: int) -> None:
        self.rows, self.count, self.watermark = rows, 0, MIN_TIME
        self.ctx, self.out = ScriptedContext(), Collected()
        self.operator = operator(rows=rows)
        self.operator.open(self.ctx, self.out)
        self.waiting: list[int] = []
        self.due_us = MAX_TIME
        self.expected: list[tuple[int, int]] = []

    def step(self, what: str, amount: int) -> None:
        if what == "rows":
            self.operator.on_rows(numbers(self.count, amount), 0)
            self.waiting += range(self.count, self.count + amount)
            self.count += amount
            full = len(self.waiting) // self.rows * self.rows
            if full:
                self.leave(full)
            if self.waiting and self.due_us == MAX_TIME:
                self.due_us = self.ctx.time.wall_us + WAIT_US
        elif what == "watermark":
            self.watermark = max(self.watermark, 10 * self.count)
            released = advance(self.operator, self.ctx, self.watermark)
            assert released <= 10 * (self.waiting[0] if self.waiting else self.count)
        elif what == "time":
            self.ctx.time.wall_us += 100 * amount
            for at in sorted(at for at in self.ctx.timers if at <= self.ctx.time.wall_us):
                self.ctx.timers.discard(at)
                self.operator.on_timer(at)
                self.leave(len(self.waiting))
        else:
            part = stored(self.operator.snapshot())
            self.operator = operator(rows=self.rows)
            self.ctx.timers.clear()
            self.operator.open(self.ctx, self.out)
            self.operator.restore([part])
        assert self.ctx.timers == ({self.due_us} if self.waiting else set())
        assert self.ctx.holds == (bool(self.waiting), False)

    def leave(self, count: int) -> None:
        for start in range(0, count, self.rows):
            rows = self.waiting[start : min(start + self.rows, count)]
            self.expected += [(row, len(rows)) for row in rows]
        self.waiting, self.due_us = self.waiting[count:], MAX_TIME


@given(st.integers(1, 5), STEPS)
def test_batches_have_their_rows_or_have_waited_or_are_the_last(rows: int, steps: list[tuple[str, int]]) -> None:
    played = Played(rows)
    for what, amount in steps:
        played.step(what, amount)
    assert advance(played.operator, played.ctx, MAX_TIME) == MAX_TIME
    played.leave(len(played.waiting))
    assert [(row["id"], row["of"]) for row in played.out.rows()] == played.expected
    assert played.ctx.holds == (False, False)


def test_rows_that_wait_go_to_the_tasks_of_another_parallelism() -> None:
    parts = []
    for low, first in ((0, 0), (64, 10)):
        one = operator()
        opened(one, ScriptedContext(range(low, low + 64)))
        one.on_rows(numbers(first, 3), 0)
        parts.append(stored(one.snapshot()))
    found = []
    for low in (0, 32, 64):
        one = operator()
        ctx, out = opened(one, ScriptedContext(range(low, low + 32 if low < 64 else 128)))
        one.restore(read_by(parts, ctx.groups))
        assert bool(ctx.timers) == ctx.holds[0]
        advance(one, ctx, MAX_TIME)
        found += [row["id"] for row in out.rows()]
    assert sorted(found) == [0, 1, 2, 10, 11, 12]


def test_watermarks_wait_for_the_rows_before_them() -> None:
    one = operator()
    ctx, _ = opened(one)
    one.on_rows(numbers(0, 3), 0)
    assert advance(one, ctx, 30) == MIN_TIME
    one.on_rows(numbers(3, 2), 0)
    assert one.released() == 30
    assert advance(one, ctx, 50) == 30
    one.on_timer(max(ctx.timers))
    assert one.released() == 50


def test_no_timer_is_left_when_the_last_rows_have_gone() -> None:
    """It might fire or not before the last snapshot, which a replay would then not repeat."""
    gathering = operator()
    ctx, out = opened(gathering)
    gathering.on_rows(numbers(0, 2), 0)
    assert len(ctx.timers) == 1
    advance(gathering, ctx, MAX_TIME)
    assert len(out.rows()) == 2
    assert not ctx.timers
    assert gathering.snapshot().values["due"] is None
