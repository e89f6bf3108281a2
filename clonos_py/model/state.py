"""The state of operators in snapshots: immutable column chunks plus small values (D15)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from clonos_py.model.hidden import hidden

GROUP_COLUMN = hidden("group")
"""int32 column of every keyed chunk: the key group of the row."""


class Chunk:
    """An immutable piece of a state table. Storage sets its location, so that it is written only once.

    ``of_others``: no row is in the key groups of the task that reads it, and only ``GROUP_COLUMN`` has been read."""

    __slots__ = ("__weakref__", "_groups", "location", "of_others", "rows")

    def __init__(self, rows: pa.RecordBatch, location: str | None = None, of_others: bool = False) -> None:
        self.rows = rows
        self.location = location
        self.of_others = of_others
        self._groups: tuple[int, int] | None = None

    @property
    def groups(self) -> tuple[int, int] | None:
        """The least and the greatest key group of its rows; None if it has no rows, or these no key groups."""
        if self._groups is None and self.rows.num_rows and self.rows.schema.get_field_index(GROUP_COLUMN) >= 0:
            found: Any = pc.min_max(self.rows.column(GROUP_COLUMN))
            self._groups = found["min"].as_py(), found["max"].as_py()
        return self._groups

    def __repr__(self) -> str:
        return f"Chunk({self.rows.num_rows} rows, {self.location or 'not stored'})"


@dataclass(frozen=True)
class OperatorState:
    """A snapshot of one operator instance.

    ``tables`` are keyed: every chunk has the column GROUP_COLUMN, and a restore takes the rows of its own key groups.
    At another parallelism a chunk without any of these may come with this column only (``Chunk.of_others``).
    Only the tables of a sink, which hold uncommitted rows, belong to the instance.
    ``values`` are small and plain (int, float, str, bytes, bool, None, list, dict with str or int keys) and belong to
    the instance. At another parallelism the operator gets those of all former instances and merges them.
    A snapshot must not reflect later changes of the state.
    """

    tables: Mapping[str, Sequence[Chunk]] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)


def united(*states: OperatorState) -> OperatorState:
    """The state of an operator of several parts, which name their tables and values differently."""
    return OperatorState(
        {name: chunks for state in states for name, chunks in state.tables.items()},
        {name: value for state in states for name, value in state.values.items()},
    )


class StateSize(msgspec.Struct, frozen=True, array_like=True):
    """The size of an operator's state in a snapshot. Rows that were replaced or deleted after they were stored count
    until the operator compacts its chunks."""

    rows: int
    bytes: int
    """In memory. Compressed files are smaller."""


def size_of(state: OperatorState) -> StateSize | None:
    """The size of the tables of a state; None if it has none."""
    if not state.tables:
        return None
    chunks = [chunk.rows for table in state.tables.values() for chunk in table]
    return StateSize(sum(rows.num_rows for rows in chunks), sum(rows.nbytes for rows in chunks))


def unchanged(old: Sequence[Chunk], new: Sequence[Chunk]) -> int:
    """The number of leading chunks that are the same objects in both."""
    same = (before is after for before, after in zip(old, new, strict=False))
    return sum(takewhile(bool, same))
