"""Updating results as values: in which form a table comes out, and in which order its rows are. The DSL makes them,
operators compute with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

TableMode = Literal["changes", "at_end", "deltas"]
"""Each new row as it comes; every row once, when all input has ended; or, for other tables, the difference that each
batch makes, as rows with a weight."""

WEIGHT_COLUMN = "_weight"
"""int8 column of deltas: 1 for a row that is there now, -1 for one that is not any more."""

CHANGE_COLUMN = "_change"
"""Text column that a sink which takes deletions is given: one of the kinds of change."""
INSERT, UPDATE, DELETE = "insert", "update", "delete"
"""The kinds of change: a row that was not there, one that replaces another, and one that is there no more, as it
was."""


@dataclass(frozen=True)
class SortKey:
    """Rows by a column; nulls are behind all others either way."""

    column: str
    descending: bool = False


@dataclass(frozen=True)
class FirstOf:
    """The first ``n`` rows of each key, in an order; where rows are equal in it, as they came."""

    keys: tuple[str, ...]
    n: int
    order: tuple[SortKey, ...]


def weighted_schema(schema: pa.Schema) -> pa.Schema:
    """The schema of the deltas of a table."""
    return schema.append(pa.field(WEIGHT_COLUMN, pa.int8(), nullable=False))


def kind_schema(schema: pa.Schema, kind: str) -> pa.Schema:
    """The schema of the changes of a table that say of which kind they are."""
    return schema.append(pa.field(kind, pa.string(), nullable=False))


def without(schema: pa.Schema, column: str | None) -> pa.Schema:
    """The schema without a column that may not be there."""
    index = -1 if column is None else schema.get_field_index(column)
    return schema if index < 0 else schema.remove(index)
