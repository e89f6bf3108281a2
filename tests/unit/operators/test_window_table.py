"""Windows as tables: at every moment the changes so far give the results that should be known then, however rows are
cut into batches, out of order or late, and through restores at another parallelism."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clonos_py.columns.keys import key_groups
from clonos_py.model.aggregates import Aggregate
from clonos_py.model.operators import Operator
from clonos_py.model.state import OperatorState
from clonos_py.model.tables import TableMode, kind_schema, weighted_schema
from clonos_py.model.times import MAX_TIME, MIN_TIME
from clonos_py.model.windows import (
    ASSIGNED_BOUNDS,
    Assigned,
    AtClose,
    Bounded,
    Cumulative,
    Emit,
    Every,
    Hopping,
    OnChange,
    Session,
    Tumbling,
)
from clonos_py.operators.keyed_rows import live_rows
from clonos_py.operators.session_table import SessionTable
from clonos_py.operators.window_table import WindowTable
from tests.unit.operators.scripted import ScriptedContext, advance, compacted_early, opened, schema, stored
from tests.unit.operators.test_windows import windows_of

WHOLE = pa.int64()
INPUT = schema(("key", pa.string()), ("value", WHOLE), ("at", WHOLE))
AGGREGATES = (
    Aggregate("count", None, "rows", WHOLE), Aggregate("sum", "value", "total", WHOLE),
    Aggregate("count_distinct", "value", "values", WHOLE),
)  # fmt: skip
BOUNDS = (("window_start", WHOLE), ("window_end", WHOLE))
MADE = tuple((aggregate.name, aggregate.type) for aggregate in AGGREGATES)

Row = tuple[str | None, int | None, int]
Step = list[Row] | int
Results = dict[tuple[Any, ...], tuple[Any, ...]]
"""By key and bounds: the aggregates."""

rows = st.tuples(st.sampled_from(["a", "b", None]), st.none() | st.integers(-3, 3), st.integers(-20, 40))
histories = st.lists(st.lists(rows, max_size=6) | st.integers(-20, 45), max_size=12)
windows = st.sampled_from([Tumbling(10), Hopping(10, 5), Hopping(4, 6), Cumulative(12, 4), Assigned(), None])
emits = st.sampled_from([AtClose(), OnChange(), Every(7)])


@pytest.fixture(autouse=True, scope="module")
def _state_is_compacted_early() -> Iterator[None]:
    with compacted_early():
        yield


Shape = Bounded | Session | None


def result(window: Shape) -> pa.Schema:
    return schema(("key", pa.string()), *(BOUNDS if window else ()), *MADE)


def table(window: Shape, emit: Emit, mode: TableMode = "changes", lateness: int = 0) -> Operator:
    kind = "change" if mode == "changes" else None
    shown = result(window)
    shown = kind_schema(shown, "change") if kind else weighted_schema(shown) if mode == "deltas" else shown
    if isinstance(window, Session):
        return SessionTable(("key",), window, AGGREGATES, shown, emit, mode, "at", lateness, kind=kind)
    time = "at" if window or isinstance(emit, Every) else None
    return WindowTable(("key",), window, AGGREGATES, shown, emit, mode, time, lateness, kind=kind)


def batch_of(given_rows: list[Row]) -> pa.RecordBatch:
    columns = [list(column) for column in zip(*given_rows, strict=True)] or [[], [], []]
    return pa.record_batch([pa.array(c, f.type) for c, f in zip(columns, INPUT, strict=True)], schema=INPUT)


def bounds_of(window: Bounded, at: int) -> list[tuple[int, int]]:
    return windows_of(Hopping(10, 5) if isinstance(window, Assigned) else window, at)


def with_bounds(batch: pa.RecordBatch, given_rows: list[Row]) -> pa.RecordBatch:
    """The rows, once for each window that a function of the user has assigned."""
    pairs = [(number, *bounds) for number, (*_, at) in enumerate(given_rows) for bounds in bounds_of(Assigned(), at)]
    batch = batch.take(np.array([number for number, _, _ in pairs], np.int64))
    for place, name in enumerate(ASSIGNED_BOUNDS, 1):
        batch = batch.append_column(name, pa.array([pair[place] for pair in pairs], WHOLE))
    return batch


class Instances:
    """Instances of a table, and what their output adds up to."""

    def __init__(self, window: Shape, emit: Emit, mode: TableMode, lateness: int) -> None:
        self.window, self.emit, self.mode, self.lateness = window, emit, mode, lateness
        self.results: Results = {}
        self.late = 0
        self.start(1, [])

    def start(self, count: int, parts: list[OperatorState]) -> None:
        self.running = []
        for number in range(count):
            groups = range(128 * number // count, 128 * (number + 1) // count)
            made = table(self.window, self.emit, self.mode, self.lateness)
            ctx, out = opened(made, ScriptedContext(groups))
            made.restore(parts)
            self.running.append((made, ctx, out))

    def rescale(self, count: int) -> None:
        self.start(count, [stored(made.snapshot()) for made, _, _ in self.running])

    def feed(self, given_rows: list[Row]) -> None:
        batch = batch_of(given_rows)
        if isinstance(self.window, Assigned):
            batch = with_bounds(batch, given_rows)
        groups = key_groups(batch, ["key"], 128) if batch.num_rows else np.empty(0, np.int32)
        for made, ctx, _ in self.running:
            made.on_rows(batch.filter(pa.array((groups >= ctx.groups.start) & (groups < ctx.groups.stop))), 0)
            self.late += ctx.counted.pop("late_rows", 0)
        self.apply()

    def advance(self, watermark: int) -> None:
        for made, ctx, _ in self.running:
            advance(made, ctx, watermark)
            if watermark == MAX_TIME:
                made.on_end()
        self.apply()

    def apply(self) -> None:
        """Takes the changes into ``results``. Checks that each is what it says it is."""
        bounds = 3 if self.window else 1
        for _, _, out in self.running:
            for row in out.take():
                cells = tuple(row.values())
                at, values, more = cells[:bounds], cells[bounds : bounds + len(AGGREGATES)], cells[-1]
                if self.mode == "at_end":
                    assert at not in self.results
                elif more in (-1, "delete"):
                    assert self.results.pop(at) == values
                    continue
                elif self.mode == "deltas":
                    assert at not in self.results
                else:
                    assert (at in self.results) == (more == "update")
                    assert self.results.get(at) != values, "a change that changes nothing"
                self.results[at] = values


class Model:
    """The same in plain Python."""

    def __init__(self, window: Bounded | None, emit: Emit, lateness: int) -> None:
        self.window, self.emit, self.lateness = window, emit, lateness
        self.rows: dict[tuple[Any, ...], list[int | None]] = {}
        self.shown: Results = {}
        self.reached, self.late = MIN_TIME, 0

    def now(self) -> Results:
        return {
            at: (len(own), sum(some) if (some := [v for v in own if v is not None]) else None, len(set(some)))
            for at, own in self.rows.items()
        }

    def feed(self, given_rows: list[Row]) -> None:
        for key, value, at in given_rows:
            if self.window is None:
                self.rows.setdefault((key,), []).append(value)
                continue
            every = bounds_of(self.window, at)
            is_open = [window for window in every if window[1] + self.lateness > self.reached]
            closed = len(every) - len(is_open)
            self.late += closed if isinstance(self.window, Assigned) else bool(every) and not is_open
            for window in is_open:
                self.rows.setdefault((key, *window), []).append(value)
        self.show(isinstance(self.emit, OnChange))

    def advance(self, watermark: int) -> None:
        before, self.reached = self.reached, max(self.reached, watermark)
        periods = (
            [at // self.emit.period_us for at in (before, self.reached)] if isinstance(self.emit, Every) else [0, 0]
        )
        self.show(watermark == MAX_TIME or (periods[0] < periods[1] and before != MIN_TIME))

    def show(self, everything: bool) -> None:
        for at, values in self.now().items():
            if everything or (len(at) > 1 and at[2] <= self.reached):
                self.shown[at] = values


def follow(found: Instances, model: Any, history: list[Step], rescale_at: int, count: int) -> None:
    """Gives a history to both, to its end, and compares them at every step. Before that of ``rescale_at``, ``count``
    other instances go on."""
    for index, step in enumerate([*history, MAX_TIME]):
        if index == rescale_at:
            found.rescale(count)
        if isinstance(step, int):
            found.advance(max(step, model.reached))
            model.advance(step)
        else:
            found.feed(step)
            model.feed(step)
        if found.mode != "at_end":
            assert found.results == model.shown
        assert found.late == model.late


@settings(max_examples=120)
@given(
    windows, emits, st.sampled_from(["changes", "deltas", "at_end"]), histories, st.integers(0, 12), st.integers(0, 12),
    st.sampled_from([1, 3]),
)  # fmt: skip
def test_changes_add_up_to_what_is_known(
    window: Bounded | None, emit: Emit, mode: TableMode, history: list[Step], lateness: int, rescale_at: int, count: int
) -> None:
    found, model = Instances(window, emit, mode, lateness), Model(window, emit, lateness)
    follow(found, model, history, rescale_at, count)
    assert found.results == model.now()
    if window is not None:
        assert not any(batch.num_rows for made, _, _ in found.running for batch in live_rows(made.snapshot(), "rows"))


def test_in_processing_time_changes_come_when_a_timer_fires_also_after_a_restore() -> None:
    every = Every(1_000, processing_time=True)
    found = Instances(None, every, "changes", 0)
    found.feed([("a", 1, 0)])
    ((made, ctx, _),) = found.running
    assert (found.results, ctx.timers) == ({}, {2_000})
    found.feed([("a", 2, 0), ("b", 2, 0)])
    found.rescale(2)
    assert all(ctx.timers <= {2_000} for _, ctx, _ in found.running)
    for made, ctx, _ in found.running:
        for at in sorted(ctx.timers):
            made.on_timer(at)
    found.apply()
    assert found.results == {("a",): (2, 3, 2), ("b",): (1, 2, 1)}
