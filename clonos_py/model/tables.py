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


def unweighted(schema: pa.Schema) -> pa.Schema:
    """The schema of the rows of a table."""
    index = schema.get_field_index(WEIGHT_COLUMN)
    return schema if index < 0 else schema.remove(index)
