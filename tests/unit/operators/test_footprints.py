"""State that is saved in parts is rebuilt exactly: from any footprints, with any input since the oldest one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos_py.model.aggregates import Aggregate
from clonos_py.model.errors import CheckpointError
from clonos_py.model.operators import PartwiseOperator
from clonos_py.model.state import Chunk, OperatorState
from clonos_py.model.tables import SortKey
from clonos_py.model.windows import Counted, Cumulative, Hopping, InPanes, Session, Tumbling
from clonos_py.operators.count_windows import CountWindowAggregate, CountWindowTop
from clonos_py.operators.footprints import OPEN_TABLE, FootprintLog, FootprintPlace, rows_of_footprints
from clonos_py.operators.keyed_chunks import with_groups
from clonos_py.operators.keyed_rows import KeyedRows
from clonos_py.operators.sessions import SessionAggregate
from clonos_py.operators.tables import TableAggregate
from clonos_py.operators.windows import WindowAggregate
from tests.unit.operators.scripted import Collected, ScriptedContext, advance, opened, schema, stored

Row = tuple[str | None, float, int]
"""key, value, time"""

INPUT = schema(("key", pa.string()), ("value", pa.float64()), ("at", pa.int64()))
AGGREGATES = (
    Aggregate("count", None, "n", pa.int64()),
    Aggregate("sum", "value", "total", pa.float64()),
    Aggregate("last", "value", "latest", pa.float64()),
)
RESULT = schema(("key", pa.string()), ("n", pa.int64()), ("total", pa.float64()), ("latest", pa.float64()))
RANKED = schema(("key", pa.string()), ("value", pa.float64()), ("rank", pa.int64()))


WINDOWED = schema(*((field.name, field.type) for field in RESULT), ("window_end", pa.int64()))


def batch(rows: Sequence[Row]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([dict(zip(INPUT.names, row, strict=True)) for row in rows], INPUT)


def aggregate(keys: Sequence[str] = ("key",)) -> PartwiseOperator:
    return CountWindowAggregate(keys, Counted(3, 3, True), AGGREGATES, without_key(RESULT, keys))


def sliding() -> PartwiseOperator:
    return CountWindowAggregate(("key",), Counted(4, 2, True), AGGREGATES, RESULT)


def top() -> PartwiseOperator:
    return CountWindowTop(("key",), Counted(3, 3, True), 2, (SortKey("value", descending=True),), RANKED, "rank")


def windowed(window: InPanes, lateness_us: int = 0, keys: Sequence[str] = ("key",)) -> PartwiseOperator:
    return WindowAggregate(keys, window, AGGREGATES, without_key(WINDOWED, keys), "at", lateness_us)


def sessions(lateness_us: int, keys: Sequence[str] = ("key",)) -> PartwiseOperator:
    return SessionAggregate(keys, Session(5), AGGREGATES, without_key(WINDOWED, keys), "at", lateness_us)


def table(mode: Any, keys: Sequence[str] = ("key",)) -> PartwiseOperator:
    return TableAggregate(keys, AGGREGATES, without_key(RESULT, keys), mode)


def without_key(results: pa.Schema, keys: Sequence[str]) -> pa.Schema:
    return results if keys else results.remove(0)


COUNTED: dict[str, Callable[[], PartwiseOperator]] = {"aggregate": aggregate, "sliding": sliding, "top": top}
MAKERS: dict[str, Callable[[], PartwiseOperator]] = {
    **COUNTED,
    "tumbling": lambda: windowed(Tumbling(10)),
    "hopping": lambda: windowed(Hopping(10, 4)),
    "cumulative": lambda: windowed(Cumulative(12, 4)),
    "late": lambda: windowed(Hopping(10, 5), 5),
    "sessions": lambda: sessions(0),
    "late sessions": lambda: sessions(9),
    "changes": lambda: table("changes"),
    "at end": lambda: table("at_end"),
    "counted, all": lambda: aggregate(()),
    "tumbling, all": lambda: windowed(Tumbling(10), keys=()),
    "sessions, all": lambda: sessions(0, ()),
    "changes, all": lambda: table("changes", ()),
}
kinds = pytest.mark.parametrize("kind", MAKERS)
counted = pytest.mark.parametrize("kind", COUNTED)
Event = pa.RecordBatch | int
"""Rows, or a watermark."""


def begun(kind: str) -> tuple[PartwiseOperator, Collected]:
    operator = MAKERS[kind]()
    _, out = opened(operator)
    operator.save_in_parts()
    return operator, out


def give(operator: PartwiseOperator, event: Event) -> None:
    if isinstance(event, int):
        context = operator.ctx
        assert isinstance(context, ScriptedContext)
        advance(operator, context, event)
    else:
        operator.on_rows(event, 0)


rows_given = st.lists(
    st.tuples(st.sampled_from(["a", "b", "c", "d", None]), st.floats(-1e9, 1e9, width=32), st.integers(0, 60)),
    max_size=6,
)
steps = st.lists(
    st.one_of(
        rows_given,
        rows_given,
        st.integers(0, 60).map(lambda at: ("watermark", at)),
        st.just("save"),
        st.integers(1, 3),
        st.just("rebuild"),
    ),
    min_size=1,
    max_size=40,
)
"""Rows, watermarks, saves, checks of so many parts, and failures."""


@kinds
@given(steps)
def test_a_rebuilt_operator_goes_on_exactly_as_its_predecessor_would_have(kind: str, given_steps: list[Any]) -> None:
    """A failure goes back to the last save. What comes again are the events since the oldest footprint. The standby has
    loaded an earlier save before."""
    operator, out = begun(kind)
    events: list[Event] = []
    results: list[list[Any]] = []
    state, oldest, saved_at, watermark = OperatorState(), 0, 0, -1
    earlier = state
    for step in given_steps:
        if isinstance(step, tuple) and step[1] <= watermark:
            continue
        if isinstance(step, list | tuple):
            if isinstance(step, tuple):
                watermark = step[1]
            events.append(watermark if isinstance(step, tuple) else batch(step))
            out.batches = []
            give(operator, events[-1])
            results.append(out.batches)
        elif step == "save":
            operator.save(len(events))
            extent = operator.extent
            assert not extent.live or extent.live[0] > 0, "the extent begins with a footprint that decides"
            earlier, state, saved_at = state, stored(operator.footprints()), len(events)
            oldest = extent.positions[0] if extent.positions else saved_at
        elif isinstance(step, int):
            operator.check(len(events), step)
        elif state.values:
            operator, out = begun(kind)
            if earlier.values:
                operator.restore([earlier])
            operator.restore([state])
            operator.begin_rebuild()
            for position in range(oldest, saved_at):
                event = events[position]
                if isinstance(event, int):
                    give(operator, event)
                else:
                    operator.rebuild(event, 0, position)
            operator.rebuilt()
            for position in range(saved_at, len(events)):
                out.batches = []
                give(operator, events[position])
                assert out.batches == results[position], "the same rows, in the same batches"
    twin, expected = begun(kind)
    for event in events:
        give(twin, event)
    out.batches, expected.batches = [], []
    operator.on_end()
    twin.on_end()
    assert out.batches == expected.batches


@counted
def test_the_extent_follows_the_oldest_key(kind: str) -> None:
    operator, _ = begun(kind)
    operator.on_rows(batch([("a", 1, 0), ("b", 1, 0)]), 0)
    operator.save(1)
    operator.on_rows(batch([("c", 1, 0)]), 0)
    operator.save(2)
    assert operator.extent == ([1, 2], [2, 1], [2, 1])
    operator.check(3, 1)
    assert operator.extent == ([1, 2, 3], [2, 1, 1], [1, 1, 1])
    operator.check(4, 1)
    assert operator.extent == ([2, 3, 4], [1, 1, 1], [1, 1, 1])
    operator.check(5, 9)
    assert operator.extent == ([5], [3], [3]), "as large as the open windows, and no larger"


@kinds
@given(steps)
def test_a_whole_state_replaces_footprints(kind: str, given_steps: list[Any]) -> None:
    """As in a fed standby, which has loaded a checkpoint before."""
    operator, out = begun(kind)
    other, found = begun(kind)
    give(operator, batch([("a", 1.0, 20)]))
    operator.save(1)
    other.restore([stored(operator.footprints())])
    give(operator, batch([("b", 2.0, 21)]))
    other.restore([stored(operator.snapshot())])
    out.batches, watermark = [], -1
    for step in given_steps:
        if isinstance(step, list) or (isinstance(step, tuple) and step[1] > watermark):
            event: Event = batch(step) if isinstance(step, list) else step[1]
            watermark = event if isinstance(event, int) else watermark
            give(operator, event)
            give(other, event)
    operator.on_end()
    other.on_end()
    assert found.batches == out.batches


def test_a_key_that_was_open_at_a_check_is_marked_when_it_closes() -> None:
    """The rows that opened it lie before the extent, those that closed it inside."""
    operator, _ = begun("aggregate")
    operator.on_rows(batch([("a", 1, 0)]), 0)
    operator.save(1)
    operator.on_rows(batch([("b", 1, 0)]), 0)
    operator.check(2, 1)
    closing = batch([("b", 1, 0), ("b", 1, 0), ("c", 1, 0), ("c", 1, 0), ("c", 1, 0)])
    operator.on_rows(closing, 0)
    operator.save(3)
    assert operator.extent == ([2, 3], [1, 1], [1, 0]), "c was not open at the check: no footprint needed"
    other, out = begun("aggregate")
    other.restore([stored(operator.footprints())])
    other.begin_rebuild()
    other.rebuild(closing, 0, 2)
    other.rebuilt()
    out.batches = []
    other.on_rows(batch([("b", 1, 0), ("b", 1, 0)]), 0)
    assert not out.batches, "two rows complete no window of three"


def test_a_closed_key_is_marked_once() -> None:
    operator, _ = begun("aggregate")
    operator.on_rows(batch([("a", 1, 0), ("b", 1, 0)]), 0)
    operator.save(1)
    operator.on_rows(batch([("a", 1, 0), ("a", 1, 0), ("c", 1, 0), ("c", 1, 0), ("c", 1, 0)]), 0)
    operator.save(2)
    assert operator.extent == ([1, 2], [2, 1], [1, 0]), "c was opened and closed in between: no footprint needed"
    operator.save(3)
    assert operator.extent == ([1, 2], [2, 1], [1, 0])


@counted
@pytest.mark.parametrize("table", ["footprints.open", "footprints.closed"])
def test_a_log_that_is_not_whole_is_refused(kind: str, table: str) -> None:
    operator, _ = begun(kind)
    operator.on_rows(batch([("a", 1, 0), ("b", 1, 0)]), 0)
    operator.save(1)
    operator.on_rows(batch([("a", 1, 0), ("a", 1, 0), ("a", 1, 0), ("a", 1, 0)]), 0)
    operator.on_rows(batch([("b", 1, 0), ("b", 1, 0)]), 0)
    operator.save(2)
    state = stored(operator.footprints())
    for number in range(len(state.tables[table])):
        chunks = [chunk for at, chunk in enumerate(state.tables[table]) if at != number]
        other, _ = begun(kind)
        with pytest.raises(CheckpointError, match="its header says"):
            other.restore([OperatorState({**state.tables, table: chunks}, state.values)])


@counted
def test_a_log_whose_keys_were_altered_is_refused(kind: str) -> None:
    operator, _ = begun(kind)
    operator.on_rows(batch([("a", 1, 0), ("b", 1, 0)]), 0)
    operator.save(1)
    state = operator.footprints()
    rows = state.tables["footprints.open"][0].rows
    altered = [Chunk(rows.set_column(0, rows.schema.field(0), pa.array(["a", "a"])))]
    other, _ = begun(kind)
    other.restore([OperatorState({**state.tables, "footprints.open": altered}, state.values)])
    with pytest.raises(CheckpointError, match="1 keys with state, its end says 2"):
        other.begin_rebuild()


@counted
def test_footprints_are_not_put_together_by_another_protocol_or_parallelism(kind: str) -> None:
    operator, _ = begun(kind)
    operator.on_rows(batch([("a", 1, 0)]), 0)
    operator.save(1)
    state = operator.footprints()
    for parts, in_parts in (([state, state], True), ([state], False)):
        other = MAKERS[kind]()
        opened(other)
        if in_parts:
            other.save_in_parts()
        with pytest.raises(CheckpointError, match="stored in parts"):
            other.restore(parts)


def test_the_newest_footprint_of_a_key_is_read_without_a_rebuild() -> None:
    """Key a was saved twice, b once and then closed, the others once."""
    rows = KeyedRows(["key"])
    log = FootprintLog(["key"], rows)

    def put(key: str, n: int) -> pa.RecordBatch:
        found = with_groups(pa.record_batch({"key": [key], "n": [n]}), ["key"], 4)
        rows.append(found)
        return found

    log.changed(put("a", 1))
    log.changed(put("b", 1))
    log.changed(put("d", 4))
    log.save(FootprintPlace(1, 4, {}))
    rows.remove(np.array([0, 1]))
    put("a", 2)
    log.changed(pa.record_batch({"key": ["b"]}))
    log.changed(put("c", 3))
    log.save(FootprintPlace(2, 4, {}))
    log.check(FootprintPlace(3, 4, {}), 1)
    state = log.state({})
    assert sum(chunk.rows.num_rows for chunk in state.tables[OPEN_TABLE]) > 3
    found = [row for part in rows_of_footprints(["key"], state) for row in part.to_pylist()]
    assert sorted((row["key"], row["n"]) for row in found) == [("a", 2), ("c", 3), ("d", 4)]
