"""Tables of operators from stored rows that no job has written: what runs of jobs show too seldom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from clonos_py.model.aggregates import Aggregate
from clonos_py.model.hidden import hidden
from clonos_py.model.ids import TaskId
from clonos_py.model.state import GROUP_COLUMN, Chunk, OperatorState
from clonos_py.model.state_definitions import StateDefinition
from clonos_py.model.windows import AtClose, Session
from clonos_py.operators.panes import PANE_COLUMN
from clonos_py.operators.running import RunningAggregate
from clonos_py.operators.session_table import SessionTable
from clonos_py.stored_state.contents import OperatorContents
from clonos_py.stored_state.user_tables import user_tables
from tests.unit.operators.scripted import opened, schema

SECOND = 1_000_000


def contents(definition: StateDefinition, *states: OperatorState, kind: str = "aggregate") -> OperatorContents:
    parts = [(TaskId("of", index), state) for index, state in enumerate(states)]
    return OperatorContents("of", kind, definition, 4, parts)


def chunk(groups: Sequence[int], **columns: Any) -> Chunk:
    return Chunk(pa.record_batch({**columns, GROUP_COLUMN: pa.array(groups, pa.int32())}))


def cell(values: Mapping[str, Any]) -> bytes:
    return msgspec.msgpack.encode((values, {}, {}))


WINDOWED = StateDefinition(
    facts={"keys": "key", "window": "tumbling 10s"},
    aggregates={"n": "count() as int64"},
    keys={"panes": {"key": "string"}},
)


def test_windows_that_had_ended_for_a_key_group_are_left_out_after_a_change_of_parallelism() -> None:
    """The new instance has not reached the end of the window that an earlier one had emitted for group 1."""
    rows = chunk([0, 1], key=["a", "b"], **{PANE_COLUMN: np.array([10, 10]) * SECOND, hidden("rows"): np.array([3, 4])})
    values = {"reached": 15 * SECOND, "ahead": [15 * SECOND, 20 * SECOND, 15 * SECOND, 15 * SECOND], "groups": [0, 4]}
    table = user_tables(contents(WINDOWED, OperatorState({"panes": [rows]}, values)))["state"]
    assert table.to_pylist() == [
        {
            "key": "a",
            "window_start": datetime(1970, 1, 1, 0, 0, 10, tzinfo=UTC),
            "window_end": datetime(1970, 1, 1, 0, 0, 20, tzinfo=UTC),
            "n": 3,
        }
    ]


def test_partial_rows_of_one_window_are_merged_and_those_of_others_are_not() -> None:
    rows = chunk(
        [0, 0, 0], key=["a", "a", "a"],
        **{PANE_COLUMN: np.array([10, 10, 20]) * SECOND, hidden("rows"): np.array([3, 4, 5])},
    )  # fmt: skip
    values = {"reached": 0, "ahead": [], "groups": [0, 4]}
    table = user_tables(contents(WINDOWED, OperatorState({"panes": [rows]}, values)))["state"]
    assert table.column("n").to_pylist() == [7, 5]


def test_an_operator_without_rows_has_its_columns() -> None:
    state = OperatorState({"panes": []}, {"reached": 0, "ahead": [], "groups": [0, 4]})
    (table,) = user_tables(contents(WINDOWED, state)).values()
    assert table.num_rows == 0
    assert table.column_names == ["key", "window_start", "window_end", "n"]


def test_the_last_entry_of_a_key_counts_and_a_tombstone_removes_it() -> None:
    definition = StateDefinition(attributes={"n": "int"}, keys={"keys": {"id": "int64"}})
    keys = [msgspec.msgpack.encode((number,)) for number in (1, 2, 3)]
    old = chunk([0, 0, 0], key=keys, state=[cell({"n": number}) for number in (10, 20, 30)])
    new = chunk([0, 0], key=keys[:2], state=pa.array([cell({"n": 11}), None], pa.binary()))
    table = user_tables(contents(definition, OperatorState({"keys": [old, new]}), kind="process"))["state"]
    assert sorted(map(tuple, (row.values() for row in table.to_pylist()))) == [(1, 11), (3, 30)]


def test_a_value_that_fits_no_column_in_one_task_is_text_in_all() -> None:
    definition = StateDefinition(attributes={"n": "int"}, keys={"keys": {"id": "int64"}})
    states = [
        OperatorState({"keys": [chunk([0], key=[msgspec.msgpack.encode((number,))], state=[cell({"n": value})])]})
        for number, value in ((1, 2), (2, 2**63))
    ]
    table = user_tables(contents(definition, *states, kind="process"))["state"]
    assert table.to_pylist() == [{"id": 1, "n": "2"}, {"id": 2, "n": str(2**63)}]


def test_names_of_users_stay_when_they_are_those_of_added_columns() -> None:
    definition = StateDefinition(keys={"rows": {"key_group": "string"}}, tables={"rows": {"key_group": "string"}})
    state = OperatorState({"rows": [chunk([3], key_group=["mine"])]})
    table = user_tables(contents(definition, state, kind="top"), key_group=True)["state"]
    assert table.to_pylist() == [{"key_group": "mine", "key_group_": 3}]


def test_rows_of_sinks_are_those_that_are_not_committed() -> None:
    first, second = (Chunk(pa.record_batch({"n": pa.array([number])})) for number in (1, 2))
    state = OperatorState({"0.4": [first], "0.5": [second]})
    (name, table), *_ = user_tables(contents(StateDefinition(), state, kind="sink")).items()
    assert (name, table.column("n").to_pylist()) == ("uncommitted", [1, 2])


def test_results_after_each_row_show_those_of_the_last_row() -> None:
    variance = Aggregate("var", "x", "variance", pa.float64(), option=1)
    operator = RunningAggregate(("key",), (variance,), schema(("key", pa.string()), ("variance", pa.float64())))
    opened(operator)
    operator.on_rows(pa.record_batch({"key": ["a", "b", "a"], "x": [1.0, 5.0, 4.0]}), 0)
    definition = StateDefinition(
        facts={"keys": "key"}, aggregates={"variance": "var[1](x) as double"}, keys={"rows": {"key": "string"}}
    )
    table = user_tables(contents(definition, operator.snapshot(), kind="reduce"))["state"]
    found = sorted(table.to_pylist(), key=lambda row: row["key"])
    assert found == [{"key": "a", "variance": 4.5}, {"key": "b", "variance": None}]


def test_sessions_of_a_table_have_their_bounds() -> None:
    total = Aggregate("sum", "x", "total", pa.int64())
    shown = schema(
        ("key", pa.string()), ("window_start", pa.int64()), ("window_end", pa.int64()), ("total", pa.int64())
    )
    operator = SessionTable(("key",), Session(5), (total,), shown, AtClose(), "changes", "at")
    opened(operator)
    operator.on_rows(pa.record_batch({"key": ["a", "a"], "x": [1, 2], "at": [0, 3]}), 0)
    aggregates, keys = (
        {"total": "sum(x) as int64"},
        {name: {"key": "string"} for name in ("rows", "pending", "replaced")},
    )
    definition = StateDefinition(facts={"keys": "key", "windows": "session 5us"}, aggregates=aggregates, keys=keys)
    tables = user_tables(contents(definition, operator.snapshot()))
    assert tables.keys() == {"state", "pending"}
    for table in tables.values():
        (row,) = table.to_pylist()
        assert (row["window_end"] - row["window_start"], row["total"]) == (timedelta(microseconds=8), 3)
