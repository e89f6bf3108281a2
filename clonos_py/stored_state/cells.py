"""The state of a process function as a table: one row per key, with a column for each attribute and each timer."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa

from clonos_py.model.state import GROUP_COLUMN
from clonos_py.operators.key_states import EncodedCell
from clonos_py.operators.process_keys import ProcessKeys
from clonos_py.stored_state.arrow_types import arrow_type
from clonos_py.stored_state.attributes import attribute_names, column_of
from clonos_py.stored_state.columns import MOMENT
from clonos_py.stored_state.contents import CELLS_TABLE, OperatorContents

_TIMER = "timer "
"""How the facts about timers begin."""


def keys_with_attributes(given: OperatorContents, rows: pa.RecordBatch) -> pa.RecordBatch:
    """The keys by the names of their columns, attributes as decoded values, timers as the times at which they fire, and
    the hidden column of the key group. An attribute is null for a key that has the default."""
    states: list[Any] = rows.column("state").to_pylist()
    encoded = [msgspec.msgpack.decode(state, type=EncodedCell) for state in states]
    columns: dict[str, Any] = decoded_keys(given, rows.column("key"))
    attributes = given.definition.attributes
    for name in attribute_names(attributes):
        columns[name] = column_of(attributes, name, [cell.values.get(name) for cell in encoded])
    for fact in given.definition.facts:
        if fact.startswith(_TIMER):
            name = fact.removeprefix(_TIMER)
            columns[name] = pa.array([cell.timers.get(name) for cell in encoded], pa.int64()).cast(MOMENT)
    columns[GROUP_COLUMN] = rows.column(GROUP_COLUMN)
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def decoded_keys(given: OperatorContents, keys: Any) -> dict[str, Any]:
    """By column of the key: its values."""
    types = {name: arrow_type(text) for name, text in given.definition.keys[CELLS_TABLE].items()}
    decoder = ProcessKeys(pa.schema([pa.field(name, kind or pa.null()) for name, kind in types.items()]))
    found = [decoder.by_name(key) for key in keys.to_pylist()]
    return {name: pa.array([key[name] for key in found], kind) for name, kind in types.items()}
