"""Keyed state of distinct rows, each with a weight other than 0: how many copies of it there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from clonos_py.columns.grouping import group
from clonos_py.columns.views import Ints, fixed
from clonos_py.model.state import OperatorState
from clonos_py.operators.keyed_chunks import grouped_schema, with_groups
from clonos_py.operators.keyed_rows import KeyedRows


class WeightedRows:
    """Rows that are distinct in ``columns``, with an int64 column ``weight`` after them. The weight is below 0 if more
    copies were removed than added so far. ``by``: the columns that decide the key group, and of a second index.
    ``table``: the name in the operator's state."""

    def __init__(self, columns: Sequence[str], table: str, weight: str, by: Sequence[str]) -> None:
        self._columns = tuple(columns)
        self._weight = weight
        self._by = tuple(by)
        self._table = table
        self.rows = KeyedRows(columns, table, by)

    def add(self, rows: pa.RecordBatch, key_groups: int) -> Ints:
        """Adds the weights of rows from ``summed`` to those of the stored rows. Returns the weights before."""
        before = self.weights(rows)
        _, numbers = self.rows.find(rows)
        self.rows.remove(numbers)
        after = before + fixed(rows.column(self._weight))
        present = np.flatnonzero(after)
        if len(present):
            kept = weighted(rows.take(present), after[present])
            self.rows.append(with_groups(kept, self._by, key_groups))
        self.rows.compact()
        return before

    def weights(self, rows: pa.RecordBatch, named: Sequence[str] | None = None) -> Ints:
        """The weights of these rows, 0 for those that are not stored. ``named``: the names of the columns in ``rows``,
        if they differ."""
        found = np.zeros(rows.num_rows, np.int64)
        positions, numbers = self.rows.find(rows, named=named)
        if len(numbers):
            found[positions] = self.weights_of(numbers)
        return found

    def weights_of(self, numbers: Ints) -> Ints:
        return fixed(self.rows.take(numbers, [self._weight]).column(self._weight))

    def find(self, rows: pa.RecordBatch, named: Sequence[str]) -> tuple[Ints, Ints]:
        """Pairs (position in ``rows``, number) of stored rows with the same values in ``by`` as ``rows`` in
        ``named``."""
        return self.rows.find(rows, by=self._by, named=named)

    def take(self, numbers: Ints) -> pa.RecordBatch:
        return self.rows.take(numbers)

    def all(self) -> list[pa.RecordBatch]:
        """All rows, in parts."""
        return self.rows.all()

    def tables(self, rows: pa.Schema) -> Mapping[str, pa.Schema]:
        """The stored columns of rows with these columns."""
        return {self._table: grouped_schema(_schema(rows, [*self._columns, self._weight]))}

    def snapshot(self) -> OperatorState:
        return self.rows.snapshot({})

    def restore(self, parts: Sequence[OperatorState], groups: range) -> None:
        self.rows.restore(parts, groups)


def summed(rows: pa.RecordBatch, columns: Sequence[str], weight: str) -> pa.RecordBatch:
    """Each row that is distinct in ``columns`` once, with the sum of its weights as int64 in the last column. Rows with
    the sum 0 are left out."""
    groups = group([rows.column(name) for name in columns], rows.num_rows)
    weights = np.zeros(groups.size, np.int64)
    np.add.at(weights, groups.ids, fixed(rows.column(weight)))
    present = np.flatnonzero(weights)
    return weighted(rows.select([*columns, weight]).take(groups.first[present]), weights[present])


def weighted(rows: pa.RecordBatch, weights: Ints) -> pa.RecordBatch:
    """The rows with other weights, in the last column."""
    columns: list[Any] = [*rows.columns[:-1], pa.array(weights, pa.int64())]
    return pa.RecordBatch.from_arrays(columns, schema=_schema(rows.schema, rows.schema.names))


def _schema(rows: pa.Schema, names: Sequence[str]) -> pa.Schema:
    """These columns, the last of which is the weight."""
    fields: list[Any] = [rows.field(name) for name in names]
    return pa.schema([*fields[:-1], fields[-1].with_type(pa.int64())])
