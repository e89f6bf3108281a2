"""Joins give the pairs of their definition, once, for any batches, snapshots and parallelism."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from clonos_py.model.errors import GraphError
from clonos_py.model.operators import Operator
from clonos_py.model.state import OperatorState
from clonos_py.model.times import MAX_TIME
from clonos_py.model.windows import Hopping, Tumbling
from clonos_py.operators.history_join import HistoryJoin
from clonos_py.operators.window_join import WindowJoin
from tests.unit.operators.join_histories import (
    COLUMNS,
    PAIR,
    Instances,
    Step,
    batch,
    histories,
    pairs,
    run,
    windows,
    windows_of,
)
from tests.unit.operators.scripted import advance, opened, schema, stored

WINDOWED = schema(("left", pa.string()), ("right", pa.string()), ("window_start", pa.int64()))


def window_join(window: Tumbling | Hopping) -> WindowJoin:
    return WindowJoin(["key"], ["key"], window, "at", "at", COLUMNS, WINDOWED)


def history_join(bounds: tuple[int, int] | None = None) -> HistoryJoin:
    return HistoryJoin(["key"], ["key"], COLUMNS, PAIR, bounds, "at", "at")


def test_a_window_join_pairs_equal_keys_of_one_window_when_it_closes() -> None:
    operator = window_join(Tumbling(10))
    ctx, out = opened(operator)
    operator.on_rows(batch([(1, 3, "a"), (2, 9, "b"), (1, 10, "c")]), 0)
    operator.on_rows(batch([(1, 0, "x"), (1, 9, "y"), (2, 12, "z")]), 1)
    assert advance(operator, ctx, 9) == 9
    assert pairs(out) == []
    assert advance(operator, ctx, 10) == 10
    assert pairs(out) == [("a", "x", 0), ("a", "y", 0)]
    operator.on_rows(batch([(1, 19, "w")]), 1)
    assert advance(operator, ctx, MAX_TIME) == MAX_TIME
    assert pairs(out)[2:] == [("c", "w", 10)]


def test_rows_of_closed_windows_are_late_and_counted() -> None:
    operator = window_join(Tumbling(10))
    ctx, out = opened(operator)
    advance(operator, ctx, 20)
    operator.on_rows(batch([(1, 19, "late"), (1, 20, "a"), (1, 3, "late")]), 0)
    operator.on_rows(batch([(1, 21, "x")]), 1)
    advance(operator, ctx, 30)
    assert pairs(out) == [("a", "x", 20)]
    assert ctx.counted["late_rows"] == 2


@pytest.mark.parametrize("operator", [window_join(Tumbling(10)), history_join((-10, 10))])
def test_rows_with_null_keys_or_null_times_match_nothing_and_are_counted(operator: Operator) -> None:
    ctx, out = opened(operator)
    for side in (0, 1):
        operator.on_rows(batch([(None, 1, "n"), (1, None, "t"), (1, 1, "a")]), side)
    advance(operator, ctx, 10)
    assert [pair[:2] for pair in pairs(out)] == [("a", "a")]
    assert ctx.counted == {"null_key_rows": 2, "null_time_rows": 2}


def test_a_processing_time_join_fires_by_timers() -> None:
    operator = window_join(Tumbling(10, processing_time=True))
    ctx, out = opened(operator)
    ctx.time.wall_us = 12
    operator.on_rows(batch([(1, None, "a")]), 0)
    ctx.time.wall_us = 17
    operator.on_rows(batch([(1, None, "x")]), 1)
    assert ctx.timers == {20}
    assert advance(operator, ctx, 100) == 100
    assert pairs(out) == []
    restored = window_join(Tumbling(10, processing_time=True))
    ctx, out = opened(restored)
    restored.restore([stored(operator.snapshot())])
    assert ctx.timers == {20}
    restored.on_timer(20)
    assert pairs(out) == [("a", "x", 10)]


def test_a_history_join_pairs_every_row_with_all_earlier_ones() -> None:
    operator = history_join()
    _, out = opened(operator)
    operator.on_rows(batch([(1, 0, "a"), (2, 0, "b")]), 0)
    operator.on_rows(batch([(2, 0, "x"), (1, 0, "y"), (1, 0, "z")]), 1)
    operator.on_rows(batch([(1, 0, "c"), (2, 0, "d")]), 0)
    assert pairs(out) == [("b", "x"), ("a", "y"), ("a", "z"), ("c", "y"), ("c", "z"), ("d", "x")]


def test_keys_may_have_several_columns_and_be_text() -> None:
    operator = HistoryJoin(["name", "key"], ["name", "key"], (("at", 1, "at"),), schema(("at", pa.int64())))
    _, out = opened(operator)
    operator.on_rows(batch([(1, 0, "a"), (2, 0, "a")]), 0)
    operator.on_rows(batch([(2, 7, "a"), (2, 8, "b")]), 1)
    assert pairs(out) == [(7,)]


def test_a_history_join_with_bounds_needs_event_time() -> None:
    with pytest.raises(GraphError, match="needs an event time"):
        HistoryJoin(["key"], ["key"], COLUMNS, PAIR, (-5, 5))


def test_the_bounds_of_a_history_join_are_inclusive() -> None:
    lefts, rights = ([(1, at, f"{side}{at}") for at in (10, 13, 15, 18, 20)] for side in "lr")
    for first in (0, 1):
        operator = history_join((-5, -2))
        _, out = opened(operator)
        operator.on_rows(batch((lefts, rights)[first]), first)
        operator.on_rows(batch((lefts, rights)[1 - first]), 1 - first)
        assert sorted(pairs(out)) == [
            ("l13", "r10"), ("l15", "r10"), ("l15", "r13"), ("l18", "r13"), ("l18", "r15"), ("l20", "r15"),
            ("l20", "r18"),
        ]  # fmt: skip


@pytest.mark.parametrize(
    ("bounds", "kept"), [((-5, 0), (20, 25)), ((0, 5), (25, 20)), ((10, 30), (50, 10)), ((-30, -10), (10, 50))]
)
def test_each_side_drops_rows_that_no_row_in_time_can_match(bounds: tuple[int, int], kept: tuple[int, int]) -> None:
    operator = history_join(bounds)
    ctx, _ = opened(operator)
    for side in (0, 1):
        operator.on_rows(batch([(1, at, "a") for at in range(100)]), side)
    advance(operator, ctx, 80)
    tables = operator.snapshot().tables
    assert tuple(sum(chunk.rows.num_rows for chunk in tables[side]) for side in ("left", "right")) == kept


def test_a_history_join_with_bounds_drops_old_state_and_late_rows() -> None:
    operator = history_join((-10, 10))
    ctx, out = opened(operator)
    operator.on_rows(batch([(1, at, f"l{at}") for at in range(100)]), 0)
    advance(operator, ctx, 80)
    operator.on_rows(batch([(1, 80, "x"), (1, 79, "late")]), 1)
    assert [left for left, _ in pairs(out)] == [f"l{at}" for at in range(70, 91)]
    assert ctx.counted["late_rows"] == 1
    assert sum(chunk.rows.num_rows for chunk in operator.snapshot().tables["left"]) == 30


def test_a_snapshot_of_a_history_join_writes_only_new_rows() -> None:
    operator = history_join()
    opened(operator)
    operator.on_rows(batch([(key, 0, "a") for key in range(1_000)]), 0)
    first = operator.snapshot().tables["left"]
    operator.on_rows(batch([(key, 0, "b") for key in range(10)]), 0)
    second = operator.snapshot().tables["left"]
    assert second[0] is first[0]
    assert [chunk.rows.num_rows for chunk in second] == [1_000, 10]


def test_many_small_batches_have_few_segments_and_give_all_pairs() -> None:
    operator = history_join()
    _, out = opened(operator)
    for number in range(600):
        operator.on_rows(batch([(number, 0, f"l{number}")]), 0)
    assert len(operator.snapshot().tables["left"]) < 25
    operator.on_rows(batch([(number, 0, f"r{number}") for number in reversed(range(600))]), 1)
    assert pairs(out) == [(f"l{n}", f"r{n}") for n in reversed(range(600))]


def test_large_results_are_divided() -> None:
    operator = history_join()
    _, out = opened(operator)
    for side in (0, 1):
        operator.on_rows(batch([(1, 0, "a")] * 300), side)
    assert sum(b.num_rows for _, b in out.batches) == 90_000
    assert max(b.num_rows for _, b in out.batches) <= 65_536


def test_a_restore_from_instances_with_different_watermarks_fires_each_window_once() -> None:
    instances = Instances(lambda: window_join(Hopping(20, 10)))
    instances.start(2, [])
    keys = range(8)
    for side, prefix in enumerate("lr"):
        instances.feed(batch([(key, 15, f"{prefix}{key}") for key in keys]), side)
    ahead, behind = instances.running
    advance(*ahead, 21)
    advance(*behind, 9)
    assert 0 < len(instances.pairs()) < len(keys)
    instances.rescale(1, 9)
    instances.rescale(3, 9)
    instances.advance(MAX_TIME)
    assert instances.pairs() == [(f"l{key}", f"r{key}", start) for key in keys for start in (0, 10)]


@given(histories, windows, st.integers(0, 14), st.integers(1, 3))
def test_window_joins_equal_their_definition(
    history: list[Step], window: Tumbling | Hopping, rescale_at: int, parallelism: int
) -> None:
    found, (left, right) = run(lambda: window_join(window), history, rescale_at, parallelism)
    expected = [
        (a[2], b[2], start)
        for a in left
        for b in right
        for start in windows_of(window, a[1])
        if a[0] == b[0] and start in windows_of(window, b[1])
        if max(a[3], b[3]) < start + window.size_us
    ]
    assert found == sorted(expected)


some_bounds = st.tuples(st.integers(-40, 40), st.integers(-40, 40)).map(lambda two: (min(two), max(two)))


@given(histories, st.integers(0, 14), st.integers(1, 3), st.none() | some_bounds)
@example([(0, [(0, 10)]), 25, (1, [(0, 30)])], 2, 2, (0, 20))
@example([(1, [(0, 10)]), 25, (0, [(0, 30)])], 2, 2, (-20, 0))
def test_history_joins_equal_their_definition(
    history: list[Step], rescale_at: int, parallelism: int, bounds: tuple[int, int] | None
) -> None:
    found, (left, right) = run(lambda: history_join(bounds), history, rescale_at, parallelism)
    expected = [
        (a[2], b[2])
        for a in left
        for b in right
        if a[0] == b[0]
        if bounds is None or (bounds[0] <= b[1] - a[1] <= bounds[1] and a[1] >= a[3] and b[1] >= b[3])
    ]
    assert found == sorted(expected)


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 1)), min_size=4, max_size=24), st.integers(0, 3))
def test_snapshots_have_the_same_chunks_after_a_restore(steps: list[tuple[int, int]], begin: int) -> None:
    """A replay starts from a snapshot, and compares the chunks of later ones. Rows are removed from time to time."""
    operator, restored = history_join((-64, 64)), history_join((-64, 64))
    (ctx, _), (other, _) = opened(operator), opened(restored)
    at = 0
    for number, (step, side) in enumerate(steps):
        at += step
        rows = batch([(n % 3, at - 60 * (n % 2), "r") for n in range(4)])
        operator.on_rows(rows, side)
        advance(operator, ctx, at)
        if number > begin:
            restored.on_rows(rows, side)
            advance(restored, other, at)
        state = operator.snapshot()
        if number == begin:
            other.watermark = ctx.watermark
            restored.restore([stored(state)])
        elif number > begin:
            assert chunks_of(restored.snapshot()) == chunks_of(state)


def chunks_of(state: OperatorState) -> dict[str, list[list[dict[str, Any]]]]:
    return {name: [chunk.rows.to_pylist() for chunk in chunks] for name, chunks in state.tables.items()}
