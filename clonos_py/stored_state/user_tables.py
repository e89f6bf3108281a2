"""The tables of an operator's state with the columns that users know: keys, windows, aggregates and attributes by name.

Columns that only the engine uses are left out. Times of windows are timestamps in UTC.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from clonos_py.columns.views import fixed
from clonos_py.model.hidden import is_hidden
from clonos_py.model.state import GROUP_COLUMN
from clonos_py.model.window_texts import window_of
from clonos_py.model.windows import WINDOW_END, WINDOW_START, Counted, Hopping, Window
from clonos_py.operators.distinct import PASSED_COLUMN
from clonos_py.operators.distinct_counts import SEEN_COLUMN, VALUE_COLUMN, VALUES_TABLE
from clonos_py.operators.keyed_rows import ROWS_TABLE
from clonos_py.operators.panes import PANE_COLUMN, PaneClock
from clonos_py.operators.window_top import WINDOW_COLUMN
from clonos_py.stored_state.arrow_types import arrow_type
from clonos_py.stored_state.attributes import as_json, attribute_names, form_of
from clonos_py.stored_state.cells import keys_with_attributes
from clonos_py.stored_state.columns import MOMENT, WINDOW_ROWS, free_name
from clonos_py.stored_state.contents import CELLS_TABLE, PARTS_TABLES, OperatorContents, StoredTable
from clonos_py.stored_state.partial_results import results_so_far

STATE_TABLE = "state"
"""The name of an operator's only table, or of the main one."""
SINK = "sink"
_PANES_TABLE = "panes"
_TIMER = "timer "


def user_tables(given: OperatorContents, key_group: bool = False) -> dict[str, pa.Table]:
    """By name, the tables of an operator. ``state`` is the main one. Joins have ``left`` and ``right``; process
    functions that take rows in order of event time ``waiting`` and ``waiting_right``, too; counts of distinct values
    ``distinct_TYPE``, too; sinks have ``uncommitted``. ``key_group``: with a column for the key group of each row."""
    found: dict[str, list[pa.Table]] = {}
    for stored in given.tables():
        rows = pa.Table.from_batches([_shaped(given, stored)])
        found.setdefault(table_name(given, stored.name), []).append(_visible(rows, key_group))
    tables = {name: _joined(parts) for name, parts in found.items()}
    return {**{name: table for name, table in _empty(given).items() if name not in tables}, **tables}


def _joined(parts: Sequence[pa.Table]) -> pa.Table:
    """The rows of all tasks. A column that has values of one type in one task and of another in the next one, such as
    numbers of more than 64 bits, is JSON text."""
    try:
        return pa.concat_tables(parts, promote_options="permissive")
    except pa.ArrowException:
        differing = {
            name for name in parts[0].column_names if len({str(part.schema.field(name).type) for part in parts}) > 1
        }
        return pa.concat_tables([_as_text(part, differing) for part in parts])


def _as_text(table: pa.Table, columns: Collection[str]) -> pa.Table:
    for name in columns:
        at, column = table.column_names.index(name), table.column(name)
        if not pa.types.is_string(column.type):
            texts = [None if value is None else as_json(value) for value in column.to_pylist()]
            table = table.set_column(at, name, pa.array(texts, pa.string()))
    return table


def table_name(given: OperatorContents, stored: str) -> str:
    """The name under which users find a stored table."""
    if given.kind == SINK:
        return "uncommitted"
    if _has_cells(given) and stored != CELLS_TABLE:
        return "waiting" if stored == ROWS_TABLE else "waiting_right"
    if stored.startswith(VALUES_TABLE):
        kind = "".join(sign if sign.isalnum() else "_" for sign in stored.removeprefix(VALUES_TABLE))
        return f"distinct_{kind}"
    return STATE_TABLE if stored in (ROWS_TABLE, _PANES_TABLE, CELLS_TABLE) else stored


def window(given: OperatorContents) -> Window | Counted | None:
    """The window of an operator; None if it has none."""
    text = given.definition.facts.get("window")
    return None if text is None else window_of(text)


def _has_cells(given: OperatorContents) -> bool:
    return CELLS_TABLE in given.definition.keys


def _shaped(given: OperatorContents, stored: StoredTable) -> pa.RecordBatch:
    """The rows with the columns that users know, and hidden ones."""
    if stored.name == CELLS_TABLE and _has_cells(given):
        return keys_with_attributes(given, stored.rows)
    if stored.name.startswith(VALUES_TABLE):
        return _with_counts(given, stored.rows)
    if given.definition.aggregates:
        rows: pa.RecordBatch = results_so_far(given, stored.name, stored.rows, window(given))
        return rows
    return _with_times(given, stored.rows)


def _with_counts(given: OperatorContents, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Adds the distinct values, and the names of the counts that have seen each."""
    counts = [name for name, text in given.definition.aggregates.items() if text.startswith("count_distinct(")]
    seen = [[name for bit, name in enumerate(counts) if bits >> bit & 1] for bits in fixed(rows.column(SEEN_COLUMN))]
    rows = rows.append_column(free_name("value", rows.schema.names), rows.column(VALUE_COLUMN))
    return rows.append_column(free_name("seen_by", rows.schema.names), pa.array(seen, pa.list_(pa.string())))


def _with_times(given: OperatorContents, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Adds the bounds of windows and the times of rows that hidden columns hold."""
    for name, column in _times(given, rows):
        if name not in rows.schema.names:
            rows = rows.append_column(pa.field(name, MOMENT), pa.array(column, pa.int64()).cast(MOMENT))
    return rows


def _times(given: OperatorContents, rows: pa.RecordBatch) -> Iterator[tuple[str, Any]]:
    if PASSED_COLUMN in rows.schema.names and "ttl" in given.definition.facts:
        yield "last_passed", fixed(rows.column(PASSED_COLUMN))
    over = window(given)
    if over is None or isinstance(over, Counted):
        return
    if WINDOW_COLUMN in rows.schema.names:
        starts = fixed(rows.column(WINDOW_COLUMN))
        yield WINDOW_START, starts
        yield WINDOW_END, starts + PaneClock(over).size  # type: ignore[arg-type]
    elif PANE_COLUMN in rows.schema.names:
        starts, is_whole = fixed(rows.column(PANE_COLUMN)), not isinstance(over, Hopping)
        yield (WINDOW_START if is_whole else "pane_start"), starts
        yield (WINDOW_END if is_whole else "pane_end"), starts + PaneClock(over).pane  # type: ignore[arg-type]


def _visible(rows: pa.Table, key_group: bool) -> pa.Table:
    names = [name for name in rows.column_names if not is_hidden(name)]
    shown = rows.select(names)
    if key_group and GROUP_COLUMN in rows.column_names:
        shown = shown.append_column(free_name("key_group", names), rows.column(GROUP_COLUMN))
    return shown


def _empty(given: OperatorContents) -> dict[str, pa.Table]:
    """The tables that an operator has even without rows, as far as the checkpoint names their columns."""
    definition = given.definition
    if _has_cells(given):
        columns = _typed(definition.keys[CELLS_TABLE])
        names = attribute_names(definition.attributes)
        columns |= {name: form_of(definition.attributes, name).type or pa.string() for name in names}
        timers = [fact.removeprefix(_TIMER) for fact in definition.facts if fact.startswith(_TIMER)]
        return {STATE_TABLE: _table(columns | dict.fromkeys(timers, MOMENT))}
    if definition.aggregates:
        columns = _typed(next(iter(definition.keys.values()), {})) | _window_columns(given)
        kinds = {name: text.rpartition(") as ")[2] for name, text in definition.aggregates.items()}
        return {STATE_TABLE: _table(columns | _typed(kinds))}
    stored = {name: _typed(columns) for name, columns in definition.tables.items() if not name.startswith(PARTS_TABLES)}
    return {table_name(given, name): _table(columns) for name, columns in stored.items()}


def _window_columns(given: OperatorContents) -> dict[str, pa.DataType]:
    over = window(given)
    if over is None:
        return {}
    return {WINDOW_ROWS: pa.int64()} if isinstance(over, Counted) else {WINDOW_START: MOMENT, WINDOW_END: MOMENT}


def _typed(texts: Mapping[str, str]) -> dict[str, pa.DataType]:
    found = {name: arrow_type(text.removesuffix(" or null")) for name, text in texts.items() if not is_hidden(name)}
    return {name: pa.string() if kind is None else kind for name, kind in found.items()}


def _table(columns: Mapping[str, pa.DataType]) -> pa.Table:
    return pa.schema([pa.field(name, kind) for name, kind in columns.items()]).empty_table()
