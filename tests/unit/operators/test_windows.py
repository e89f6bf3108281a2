"""Tumbling and hopping windows: their results, when they are emitted, and how late rows are handled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos_py.columns.keys import key_groups
from clonos_py.model.aggregates import Aggregate
from clonos_py.model.operators import Operator
from clonos_py.model.tables import SortKey
from clonos_py.model.times import LONGEST_US, MAX_TIME
from clonos_py.model.windows import Cumulative, Hopping, InPanes, Session, Tumbling
from clonos_py.operators import panes
from clonos_py.operators.panes import PANE_COLUMN
from clonos_py.operators.sessions import SessionAggregate
from clonos_py.operators.window_operator import LATE_PORT
from clonos_py.operators.window_top import WindowTop
from clonos_py.operators.windows import WindowAggregate, WindowCombine, combined_schema
from tests.unit.operators.scripted import ScriptedContext, advance, opened, stored

AGGREGATES = (
    Aggregate("count", None, "rows", pa.int64()),
    Aggregate("count", "value", "values", pa.int64()),
    Aggregate("sum", "value", "total", pa.int64()),
    Aggregate("min", "value", "least", pa.int64()),
    Aggregate("max", "value", "most", pa.int64()),
    Aggregate("mean", "value", "mean", pa.float64()),
)
COUNT = AGGREGATES[:1]
INPUT = pa.schema({"key": pa.string(), "value": pa.int64(), "at": pa.int64()}.items())  # type: ignore[arg-type]
NAMES = {"key": pa.string(), "window_start": pa.int64(), "window_end": pa.int64()}
RESULT = pa.schema((NAMES | {a.name: a.type for a in AGGREGATES}).items())  # type: ignore[arg-type]
COUNTED = pa.schema((NAMES | {"rows": pa.int64()}).items())  # type: ignore[arg-type]

Row = tuple[str | None, int | None, int]
ROWS = st.lists(
    st.tuples(st.sampled_from(["a", "b", "c", None]), st.one_of(st.none(), st.integers(-9, 9)), st.integers(-40, 40)),
    max_size=25,
)
WINDOWS = st.sampled_from(
    [
        Tumbling(10),
        Tumbling(1),
        Hopping(10, 5),
        Hopping(9, 6),
        Hopping(12, 3),
        Hopping(20, 2),
        Hopping(4, 6),
        Cumulative(12, 3),
        Cumulative(20, 20),
        Cumulative(10, 1),
    ]
)


@pytest.fixture(autouse=True, scope="module")
def _state_is_compacted_early() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for module, name, value in ((panes, "_DOUBLING_ROWS", 5), (panes, "_MANY_CHUNKS", 3)):
            patch.setattr(module, name, value)
        yield


class WallClock:
    """Processing time as a test sets it."""

    def __init__(self, us: int) -> None:
        self.us = us

    def now(self) -> int:
        return self.us


def at_wall_time(us: int) -> tuple[ScriptedContext, WallClock]:
    ctx, clock = ScriptedContext(), WallClock(us)
    ctx.time = cast(Any, clock)
    return ctx, clock


def batch(rows: list[Row]) -> pa.RecordBatch:
    columns = [list(column) for column in zip(*rows, strict=True)] or [[], [], []]
    return pa.record_batch([pa.array(c, f.type) for c, f in zip(columns, INPUT, strict=True)], schema=INPUT)


def aggregate(window: InPanes, **settings: Any) -> WindowAggregate:
    return WindowAggregate(("key",), window, COUNT, COUNTED, "at", **settings)


def windows_of(window: InPanes, at: int) -> list[tuple[int, int]]:
    """Start and end of the windows of a time."""
    if isinstance(window, Cumulative):
        start = at // window.size_us * window.size_us
        ends = range(start + window.step_us, start + window.size_us + 1, window.step_us)
        return [(start, end) for end in ends if at < end]
    slide = window.slide_us if isinstance(window, Hopping) else window.size_us
    starts = range(-120, 120, slide)
    return [(start, start + window.size_us) for start in starts if start <= at < start + window.size_us]


def expected(window: InPanes, rows: list[Row]) -> dict[tuple[str | None, int, int], dict[str, Any]]:
    groups: dict[tuple[str | None, int, int], list[int | None]] = {}
    for key, value, at in rows:
        for start, end in windows_of(window, at):
            groups.setdefault((key, start, end), []).append(value)
    results = {}
    for (key, start, end), group in groups.items():
        some = [value for value in group if value is not None]
        results[key, start, end] = {
            "key": key,
            "window_start": start,
            "window_end": end,
            "rows": len(group),
            "values": len(some),
            "total": sum(some) if some else None,
            "least": min(some, default=None),
            "most": max(some, default=None),
            "mean": sum(some) / len(some) if some else None,
        }
    return results


def by_window(rows: list[dict[str, Any]]) -> dict[tuple[str | None, int, int], dict[str, Any]]:
    found = {(row["key"], row["window_start"], row["window_end"]): row for row in rows}
    assert len(found) == len(rows), "a window came out twice"
    return found


@given(WINDOWS, st.lists(ROWS, max_size=5), st.booleans())
def test_every_window_of_every_key_comes_out_once(window: InPanes, batches: list[list[Row]], combined: bool) -> None:
    operator = WindowAggregate(("key",), window, AGGREGATES, RESULT, "at", combined=combined)
    ctx, out = opened(operator)
    combine = WindowCombine(("key",), window, AGGREGATES, "at")
    _, partial = opened(combine)
    for rows in batches:
        if combined:
            combine.on_rows(batch(rows), 0)
        else:
            operator.on_rows(batch(rows), 0)
    for _, rows_combined in partial.batches:
        assert rows_combined.schema.equals(combined_schema(INPUT, ("key",), window, AGGREGATES))
        operator.on_rows(rows_combined, 0)
    advance(operator, ctx, MAX_TIME)
    assert by_window(out.rows()) == expected(window, [row for rows in batches for row in rows])


@given(WINDOWS, st.lists(st.tuples(ROWS, st.integers(-40, 60)), max_size=6), st.integers(0, 15))
def test_at_any_watermark_the_last_results_are_those_of_the_rows_in_time(
    window: InPanes, steps: list[tuple[list[Row], int]], lateness: int
) -> None:
    operator = aggregate(window, lateness_us=lateness)
    ctx, out = opened(operator)
    taken: Counter[tuple[str | None, int, int]] = Counter()
    late = 0
    reached = -1_000
    for rows, watermark in steps:
        operator.on_rows(batch(rows), 0)
        for key, _, at in rows:
            open_windows = [w for w in windows_of(window, at) if w[1] + lateness > reached]
            late += bool(windows_of(window, at)) and not open_windows
            taken.update((key, *w) for w in open_windows)
        reached = max(reached, watermark)
        advance(operator, ctx, reached)
        last = {(row["key"], row["window_start"], row["window_end"]): row["rows"] for row in out.rows()}
        assert last == {of: n for of, n in taken.items() if of[2] <= reached}
    assert len(out.rows(LATE_PORT)) == late == ctx.counted["late_rows"]


def test_a_window_fires_when_the_watermark_reaches_its_end_and_not_before() -> None:
    operator = aggregate(Tumbling(10))
    ctx, out = opened(operator)
    operator.on_rows(batch([("a", 1, 9), ("a", 1, 10)]), 0)
    assert advance(operator, ctx, 9) == 9
    assert out.take() == []
    assert advance(operator, ctx, 10) == 10
    assert out.take() == [{"key": "a", "window_start": 0, "window_end": 10, "rows": 1}]
    advance(operator, ctx, MAX_TIME)
    assert out.take() == [{"key": "a", "window_start": 10, "window_end": 20, "rows": 1}]


def test_a_late_row_within_the_lateness_emits_the_window_of_its_key_again() -> None:
    operator = aggregate(Tumbling(10), lateness_us=5)
    ctx, out = opened(operator)
    operator.on_rows(batch([("a", 1, 1), ("b", 1, 2)]), 0)
    advance(operator, ctx, 12)
    assert len(out.take()) == 2
    operator.on_rows(batch([("b", 1, 3)]), 0)
    assert out.take() == [{"key": "b", "window_start": 0, "window_end": 10, "rows": 2}]
    advance(operator, ctx, 15)
    operator.on_rows(batch([("b", 1, 3)]), 0)
    assert out.take() == []
    assert out.take(LATE_PORT) == [{"key": "b", "value": 1, "at": 3}]
    assert ctx.counted["late_rows"] == 1


def test_rows_without_a_time_are_counted_and_dropped() -> None:
    operator = aggregate(Tumbling(10))
    ctx, out = opened(operator)
    rows = pa.RecordBatch.from_pylist([{"key": "a", "value": 1, "at": None}, {"key": "a", "value": 1, "at": 1}], INPUT)
    operator.on_rows(rows, 0)
    advance(operator, ctx, MAX_TIME)
    assert ctx.counted["null_time_rows"] == 1
    assert [row["rows"] for row in out.rows()] == [1]


def test_without_keys_there_is_one_result_per_window() -> None:
    schema = pa.schema([pa.field("window_end", pa.int64()), pa.field("most", pa.int64())])
    operator = WindowAggregate((), Tumbling(10), AGGREGATES[4:5], schema, "at")
    ctx, out = opened(operator)
    operator.on_rows(batch([("a", 3, 1), ("b", 7, 2), ("c", 5, 12)]), 0)
    advance(operator, ctx, MAX_TIME)
    assert out.rows() == [{"window_end": 10, "most": 7}, {"window_end": 20, "most": 5}]


def test_input_and_output_times_may_be_timestamps() -> None:
    instant = pa.timestamp("us", "UTC")
    rows = pa.record_batch({"key": pa.array(["a"]), "value": pa.array([1]), "at": pa.array([1_000_003], instant)})
    types: dict[str, Any] = {"key": pa.string(), "window_end": instant, "rows": pa.int64()}
    schema = pa.schema(types.items())
    operator = WindowAggregate(("key",), Tumbling(10), COUNT, schema, "at")
    ctx, out = opened(operator)
    operator.on_rows(rows, 0)
    advance(operator, ctx, MAX_TIME)
    (_, result) = out.batches[0]
    assert result.schema.equals(schema)
    assert result.column("window_end").cast(pa.int64()).to_pylist() == [1_000_010]


@pytest.mark.parametrize("window", [Tumbling(10, True), Hopping(10, 5, True)])
def test_processing_time_windows_count_by_arrival_and_fire_by_timer(window: InPanes) -> None:
    operator = aggregate(window)
    ctx, clock = at_wall_time(1_007)
    _, out = opened(operator, ctx)
    operator.on_rows(batch([("a", 1, 0), ("b", 1, 0)]), 0)
    clock.us = 1_012
    operator.on_rows(batch([("a", 1, 0)]), 0)
    for at in sorted(ctx.timers):
        operator.on_timer(at)
    found = {(row["key"], row["window_start"]): row["rows"] for row in out.rows()}
    slide = window.slide_us if isinstance(window, Hopping) else 10
    assert found == (
        {("a", 1_000): 1, ("b", 1_000): 1, ("a", 1_010): 1}
        if slide == 10
        else {("a", 1_000): 1, ("b", 1_000): 1, ("a", 1_005): 2, ("b", 1_005): 1, ("a", 1_010): 1}
    )


def test_a_processing_time_window_is_not_reopened_when_the_clock_is_set_back() -> None:
    operator = aggregate(Tumbling(10, True))
    ctx, clock = at_wall_time(1_000)
    _, out = opened(operator, ctx)
    operator.on_rows(batch([("a", 1, 0)]), 0)
    operator.on_timer(1_010)
    clock.us = 1_005
    operator.on_rows(batch([("a", 1, 0)]), 0)
    operator.on_end()
    assert [(row["window_start"], row["rows"]) for row in out.rows()] == [(1_000, 1), (1_010, 1)]


def test_open_processing_time_windows_are_emitted_at_the_end() -> None:
    operator = aggregate(Tumbling(10, True))
    ctx, out = opened(operator)
    operator.on_rows(batch([("a", 1, 0)]), 0)
    advance(operator, ctx, MAX_TIME)
    assert out.rows() == []
    operator.on_end()
    assert [row["rows"] for row in out.rows()] == [1]


@given(WINDOWS, st.lists(st.tuples(ROWS, st.integers(-40, 60)), max_size=5), st.integers(0, 5), st.integers(0, 9))
def test_a_restored_operator_gives_the_same_results(
    window: InPanes, steps: list[tuple[list[Row], int]], cut: int, lateness: int
) -> None:
    first = aggregate(window, lateness_us=lateness)
    second = aggregate(window, lateness_us=lateness)
    (ctx, out), (other_ctx, other_out) = opened(first), opened(second)
    reached = -1_000
    for position, (rows, watermark) in enumerate(steps):
        if position == cut:
            second.restore([stored(first.snapshot())])
            out.batches.clear()
            other_out.batches.clear()
        reached = max(reached, watermark)
        first.on_rows(batch(rows), 0)
        advance(first, ctx, reached)
        if position >= cut:
            second.on_rows(batch(rows), 0)
            advance(second, other_ctx, reached)
    if cut < len(steps):
        assert [b.to_pylist() for _, b in out.batches] == [b.to_pylist() for _, b in other_out.batches]


def test_state_moves_to_another_parallelism() -> None:
    first = aggregate(Tumbling(10))
    opened(first)
    first.on_rows(batch([(f"key {i}", 1, 1) for i in range(50)]), 0)
    found: list[str] = []
    for groups in (range(0, 40), range(40, 128)):
        second = aggregate(Tumbling(10))
        ctx, out = opened(second, ScriptedContext(groups))
        second.restore([stored(first.snapshot())])
        advance(second, ctx, MAX_TIME)
        assert 0 < len(out.rows()) < 50
        found += [row["key"] for row in out.rows()]
    assert sorted(found) == sorted(f"key {i}" for i in range(50))


@pytest.mark.parametrize("window", [Tumbling(10), Hopping(10, 5)])
def test_instances_with_different_watermarks_fire_each_window_once_after_a_restore(window: InPanes) -> None:
    keys = [f"key {i}" for i in range(60)]
    former = [(aggregate(window), ScriptedContext(groups)) for groups in (range(0, 64), range(64, 128))]
    results: list[tuple[str, int]] = []
    for (operator, ctx), watermark in zip(former, (12, 22), strict=True):
        _, out = opened(operator, ctx)
        rows = batch([(key, 1, at) for key in keys for at in (6, 16)])
        mine = np.isin(key_groups(rows, ["key"], 128), ctx.groups)
        operator.on_rows(rows.filter(pa.array(mine)), 0)
        advance(operator, ctx, watermark)
        results += [(row["key"], row["window_start"]) for row in out.rows()]
    snapshots = [stored(operator.snapshot()) for operator, _ in former]
    for groups in (range(0, 100), range(100, 128)):
        operator = aggregate(window)
        ctx, out = opened(operator, ScriptedContext(groups))
        operator.restore(snapshots)
        again = aggregate(window)
        opened(again, ctx)
        again.restore([stored(operator.snapshot())])
        again.out = out
        late = batch([(key, 1, 12) for key in keys])
        mine = np.isin(key_groups(late, ["key"], 128), np.arange(groups.start, groups.stop))
        again.on_rows(late.filter(pa.array(mine)), 0)
        for watermark in (15, 22, MAX_TIME):
            advance(again, ctx, watermark)
        results += [(row["key"], row["window_start"]) for row in out.rows()]
    starts = {start for at in (6, 12, 16) for start, _ in windows_of(window, at)}
    assert sorted(results) == sorted((key, start) for key in keys for start in starts)


def test_a_restored_processing_time_window_sets_its_timers_again() -> None:
    first = aggregate(Tumbling(10, True))
    ctx, _ = opened(first, at_wall_time(1_000)[0])
    first.on_rows(batch([("a", 1, 0)]), 0)
    second = aggregate(Tumbling(10, True))
    other, out = opened(second)
    second.restore([stored(first.snapshot())])
    assert other.timers == ctx.timers == {1_010}
    second.on_timer(1_010)
    assert [row["rows"] for row in out.rows()] == [1]


def test_a_snapshot_repeats_the_chunks_of_earlier_ones() -> None:
    operator = aggregate(Tumbling(10))
    opened(operator)
    operator.on_rows(batch([("a", 1, 1)]), 0)
    before = operator.snapshot().tables["panes"]
    operator.on_rows(batch([("b", 1, 1), ("b", 1, 11)]), 0)
    after = operator.snapshot().tables["panes"]
    assert len(before) == 1
    assert after[0] is before[0]
    assert [set(chunk.rows.column(PANE_COLUMN).to_pylist()) for chunk in after] == [{0}, {0}, {10}]


def test_many_small_batches_have_few_chunks() -> None:
    operator = aggregate(Tumbling(10))
    ctx, out = opened(operator)
    for i in range(500):
        operator.on_rows(batch([(f"{i % 300}", 1, 1)]), 0)
    assert len(operator.snapshot().tables["panes"]) <= 33
    advance(operator, ctx, 10)
    assert sum(row["rows"] for row in out.rows()) == 500
    assert len(out.rows()) == 300
    assert operator.snapshot().tables["panes"] == []


FAR = 2**62
"""The farthest times that windows take."""


@given(
    st.lists(st.sampled_from([-FAR, FAR, 0]).flatmap(lambda at: st.integers(max(at - 9, -FAR), min(at + 9, FAR)))),
    st.sampled_from([1, 10, 2**40 + 7, 2**61, LONGEST_US]),
    st.none() | st.sampled_from([-FAR, 0, FAR]),
    st.sampled_from(["tumbling", "hopping", "session", "top"]),
)
def test_no_row_is_lost_at_the_edges_of_time(times: list[int], size: int, watermark: int | None, kind: str) -> None:
    """Each row is in a window that ends after it began, or is counted."""
    operator: Operator
    match kind:
        case "session":
            operator = SessionAggregate(("key",), Session(size), COUNT, COUNTED, "at")
        case "top":
            order = (SortKey("at"),)
            schema = pa.schema((NAMES | {"at": pa.int64()}).items())  # type: ignore[arg-type]
            operator = WindowTop(("key",), Tumbling(size), len(times) + 1, order, schema, "at")
        case _:
            operator = aggregate(Tumbling(size) if kind == "tumbling" else Hopping(size // 2 * 2 or 2, size // 2 or 1))
    ctx, out = opened(operator)
    if watermark is not None:
        advance(operator, ctx, watermark)
    operator.on_rows(batch([("a", 1, at) for at in times]), 0)
    advance(operator, ctx, MAX_TIME)
    operator.on_end()
    assert all(row["window_start"] < row["window_end"] for row in out.rows())
    found = sum(row.get("rows", 1) for row in out.rows())
    if kind == "hopping":  # each row is in two windows, in one if the other has ended, or late
        assert len(times) - ctx.counted["late_rows"] <= found <= 2 * len(times)
        if watermark is None:
            assert found == 2 * len(times)
    else:
        assert found + ctx.counted["late_rows"] == len(times)
