"""A function of whole windows is called once for each, with all its rows in order, however these come."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from clonos_py.model.times import MAX_TIME, MIN_TIME
from clonos_py.model.windows import Cumulative, Hopping, InPanes, Session, Tumbling
from clonos_py.operators.window_groups import MapSessions, MapWindows
from tests.unit.operators import test_sessions
from tests.unit.operators.scripted import Instances, advance, compacted_early, schema
from tests.unit.operators.test_windows import windows_of

INPUT = schema(("id", pa.int64()), ("key", pa.string()), ("at", pa.int64()))
GIVEN = schema(("id", pa.int64()), ("key", pa.string()), ("window_start", pa.int64()), ("window_end", pa.int64()))
RESULT = schema(("key", pa.string()), ("start", pa.int64()), ("end", pa.int64()), ("ids", pa.list_(pa.int64())))

Step = list[tuple[str | None, int]] | int
rows = st.tuples(st.sampled_from(["a", "b", "c", None]), st.integers(-20, 40))
histories = st.lists(st.lists(rows, max_size=6) | st.integers(-20, 45), max_size=12)
windows = st.sampled_from([Tumbling(10), Hopping(10, 5), Hopping(4, 6), Cumulative(12, 4)])


def listed(rows: pa.RecordBatch) -> pa.RecordBatch:
    key, start, end = (rows.column(name)[0] for name in ("key", "window_start", "window_end"))
    assert all(len(rows.column(name).unique()) == 1 for name in ("key", "window_start", "window_end"))
    ids = pa.array([rows.column("id").to_pylist()], pa.list_(pa.int64()))
    return pa.RecordBatch.from_arrays(
        [pa.array([one.as_py()], one.type) for one in (key, start, end)] + [ids], schema=RESULT
    )


@settings(max_examples=100)
@given(windows, histories, st.integers(0, 12), st.sampled_from([1, 3]))
def test_each_window_comes_once_with_its_rows_in_order(
    window: InPanes, history: list[Step], rescale_at: int, count: int
) -> None:
    found = Instances(lambda: MapWindows(listed, GIVEN, RESULT, ("key",), window, "at"))
    expected: dict[tuple[Any, ...], list[tuple[int, int]]] = {}
    emitted: list[dict[str, Any]] = []
    reached, number, late, counted = MIN_TIME, 0, 0, 0
    for index, step in enumerate([*history, MAX_TIME]):
        if index == rescale_at:
            counted += sum(ctx.counted["late_rows"] for _, ctx, _ in found._running)
            emitted += found.emitted()
            found.go_on_as(count)
        if isinstance(step, int):
            reached = max(reached, step)
            for operator, ctx, _ in found._running:
                advance(operator, ctx, reached)
            closed = {of for of in expected if of[2] <= reached}
            assert {(row["key"], row["start"], row["end"]) for row in [*emitted, *found.emitted()]} == closed
            continue
        given_rows = [(number + nth, key, at) for nth, (key, at) in enumerate(step)]
        number += len(given_rows)
        columns: list[Any] = [list(column) for column in zip(*given_rows, strict=True)] or [[], [], []]
        arrays = [pa.array(column, field.type) for column, field in zip(columns, INPUT, strict=True)]
        found.on_rows(pa.record_batch(arrays, schema=INPUT), "key")
        for id_, key, at in given_rows:
            every = windows_of(window, at)
            late += bool(every) and all(end <= reached for _, end in every)
            for start, end in every:
                if end > reached:
                    expected.setdefault((key, start, end), []).append((at, id_))
    emitted += found.emitted()
    counted += sum(ctx.counted["late_rows"] for _, ctx, _ in found._running)
    assert counted == late
    results = [(row["key"], row["start"], row["end"], row["ids"]) for row in emitted]
    wanted = [(*of, [id_ for _, id_ in sorted(ids)]) for of, ids in expected.items()]
    assert sorted(results, key=repr) == sorted(wanted, key=repr)


SUMMED = pa.schema([*test_sessions.RESULT, ("times", pa.list_(pa.int64()))])


def summed(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The columns of the reference, and the times of the rows in their order."""
    values, bounds = rows.column("value").to_pylist(), [rows.column(name)[0] for name in SUMMED.names[:3]]
    assert all(len(rows.column(name).unique()) == 1 for name in SUMMED.names[:3])
    columns = [*(bound.as_py() for bound in bounds), len(values), sum(values), rows.column("at").to_pylist()]
    return pa.RecordBatch.from_arrays(
        [pa.array([c], f.type) for c, f in zip(columns, SUMMED, strict=True)], schema=SUMMED
    )


def make_sessions() -> MapSessions:
    given = pa.schema([*test_sessions.INPUT, *(SUMMED.field(name) for name in ("window_start", "window_end"))])
    keys = pa.schema([test_sessions.INPUT.field("key")])
    return MapSessions(summed, given, SUMMED, keys, Session(test_sessions.GAP), "at")


@given(test_sessions.STEPS, st.integers(0, 6), st.sampled_from([1, 3]))
def test_each_session_comes_once_with_its_rows_in_order(
    steps: list[tuple[list[test_sessions.Row], int]], rescale_at: int, count: int
) -> None:
    with compacted_early():
        found, reference = Instances(make_sessions), test_sessions.Reference(0)
        emitted: list[dict[str, Any]] = []
        late, reached = 0, -1_000
        for index, (rows, watermark) in enumerate([*steps, ([], MAX_TIME)]):
            if index == rescale_at:
                emitted += found.emitted()
                late += sum(ctx.counted["late_rows"] for _, ctx, _ in found._running)
                found.go_on_as(count)
                found.advance(reached)
            found.on_rows(test_sessions.batch(rows), "key")
            reference.on_rows(rows)
            reference.on_watermark(watermark)
            reached = max(reached, watermark)
            found.advance(reached)
    emitted += found.emitted()
    assert all(row["times"] == sorted(row["times"]) for row in emitted)
    sessions = test_sessions.found([{name: row[name] for name in test_sessions.NAMES} for row in emitted])
    assert test_sessions.in_order(sessions) == test_sessions.in_order(reference.out)
    assert late + sum(ctx.counted["late_rows"] for _, ctx, _ in found._running) == reference.late
