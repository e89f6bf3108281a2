"""What a checkpoint holds of one operator: the live rows of its tables, as they are stored.

Rows that were replaced or deleted since they were written, and are still stored, are left out. State that is saved in
parts (E14) consists of footprints: the newest one of each key decides, and shows the key as it was there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from clonos_py.columns.views import concat, plain_type
from clonos_py.model.ids import TaskId
from clonos_py.model.state import OperatorState
from clonos_py.model.state_definitions import StateDefinition
from clonos_py.operators.distinct_counts import VALUES_TABLE
from clonos_py.operators.footprints import rows_of_footprints, saved_in_parts
from clonos_py.operators.key_states import live_cells
from clonos_py.operators.keyed_rows import ROWS_TABLE, live_rows

CELLS_TABLE = "keys"
"""The table of a process function that has its attributes, by key."""
PARTS_TABLES = "footprints."
"""How the names of tables begin that hold footprints, and the order in which input came."""


@dataclass(frozen=True)
class StoredTable:
    """The live rows of a table of one task."""

    task: TaskId
    name: str
    rows: pa.RecordBatch


@dataclass(frozen=True)
class OperatorContents:
    """One operator. ``parts``: the snapshots of its tasks."""

    name: str
    kind: str
    """Its verb, or ``sink``; empty if the checkpoint does not name it."""
    definition: StateDefinition
    key_groups: int
    parts: Sequence[tuple[TaskId, OperatorState]]

    @property
    def states(self) -> list[OperatorState]:
        return [state for _, state in self.parts]

    def keys(self, table: str) -> list[str]:
        """The key columns of a table; none if its rows have no key."""
        known = self.definition.keys
        return list(known.get(table) or (known.get(ROWS_TABLE, {}) if table.startswith(VALUES_TABLE) else {}))

    def tables(self) -> Iterator[StoredTable]:
        """The tables with live rows, by task."""
        for task, state in self.parts:
            names = [name for name in state.tables if not name.startswith(PARTS_TABLES)]
            for name in dict.fromkeys([*names, *([ROWS_TABLE] if saved_in_parts(state) and not names else [])]):
                found = [rows for rows in self._live(state, name) if rows.num_rows]
                if found:
                    yield StoredTable(task, name, _plain(_united(found)))

    def _live(self, state: OperatorState, name: str) -> list[pa.RecordBatch]:
        if name == CELLS_TABLE and self.definition.keys.get(CELLS_TABLE):
            return live_cells(state.tables[name])
        if name == ROWS_TABLE and name not in state.tables:
            return rows_of_footprints(self.keys(ROWS_TABLE), state)
        return live_rows(state, name)


def _united(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """The rows of chunks, of which older ones may have narrower types: a job may widen numbers when it resumes."""
    if all(rows.schema.equals(batches[0].schema) for rows in batches):
        return concat(batches)
    tables = [pa.Table.from_batches([rows]) for rows in batches]
    return concat(pa.concat_tables(tables, promote_options="permissive").combine_chunks().to_batches())


def _plain(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Without dictionaries, which differ from chunk to chunk."""
    if not any(pa.types.is_dictionary(field.type) for field in rows.schema):
        return rows
    schema = pa.schema([pa.field(field.name, plain_type(field.type)) for field in rows.schema])
    return rows.cast(schema)
