"""Updating results as values: the form in which a table is output, and the order of its rows. Created by the DSL and
computed by operators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from clonos_py.model.hidden import hidden

TableMode = Literal["changes", "at_end", "deltas"]
"""``changes``: each new row as it comes. ``at_end``: every row once, when all input has ended. ``deltas``, for other
tables: the difference made by each batch, as rows with a weight."""

WEIGHT_COLUMN = hidden("weight")
"""int8 column of deltas: 1 for a row that is added, -1 for a row that is removed."""

DELTA_WEIGHT = "weight"
"""int64 column of deltas that users declare: how many copies of a row are added or, below 0, removed."""

CHANGE_COLUMN = "_change"
"""Text column for sinks that accept deletions: the kind of change."""
INSERT, UPDATE, DELETE = "insert", "update", "delete"
"""The kinds of change: a new row, a row that replaces another, and a row that is removed, with its last values."""


@dataclass(frozen=True)
class SortKey:
    """Sorts rows by a column; nulls come last in either direction."""

    column: str
    descending: bool = False


@dataclass(frozen=True)
class FirstOf:
    """The first ``n`` rows of each key in an order; rows that are equal in it stay in the order of arrival."""

    keys: tuple[str, ...]
    n: int
    order: tuple[SortKey, ...]


def weighted_schema(schema: pa.Schema) -> pa.Schema:
    """The schema of the deltas of a table."""
    return schema.append(pa.field(WEIGHT_COLUMN, pa.int8(), nullable=False))


def kind_schema(schema: pa.Schema, kind: str) -> pa.Schema:
    """The schema of a table's changes with a column for their kind."""
    return schema.append(pa.field(kind, pa.string(), nullable=False))


def without(schema: pa.Schema, column: str | None) -> pa.Schema:
    """The schema without a column; unchanged if it has no such column."""
    index = -1 if column is None else schema.get_field_index(column)
    return schema if index < 0 else schema.remove(index)
