"""Incremental inner join of two delta streams: deleting a row on one side retracts every pair made with it.

The column ``weight`` of a delta is the number of copies of the row that are added, or, below 0, deleted. The weight of
a pair is the product of both weights. Sums and products do not depend on the order of deltas. So neither does the final
set of pairs, even if a delete arrives before its insert. Until all deltas have arrived, pairs may be emitted and
retracted.

The state holds the rows with a weight other than 0, by key. The weight is negative if more copies were deleted than
added so far.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from clonos_py.columns.grouping import group
from clonos_py.columns.views import Ints, fixed
from clonos_py.model.joins import JoinColumns
from clonos_py.model.operators import Operator
from clonos_py.model.state import OperatorState
from clonos_py.operators.keyed_chunks import grouped_schema, with_groups
from clonos_py.operators.keyed_rows import KeyedRows
from clonos_py.operators.pairs import EMIT_ROWS, Pairs, matchable

DELTA_WEIGHT = "weight"
_SIDES = ("left", "right")


class DeltaJoin(Operator):
    """Joins on equal ``keys``, which both sides have (null equals nothing). ``sides``: the columns of each side without
    its weight; rows that are equal in all of them are the same row. ``columns``: those of ``schema`` without its
    weight."""

    def __init__(
        self, keys: Sequence[str], sides: tuple[Sequence[str], Sequence[str]], columns: JoinColumns, schema: pa.Schema
    ) -> None:
        self._keys = tuple(keys)
        self._columns = tuple(tuple(names) for names in sides)
        self._sides = tuple(KeyedRows(names, side, keys) for names, side in zip(sides, _SIDES, strict=True))
        self._schema = schema
        self._pairs = Pairs(columns, schema.remove(schema.get_field_index(DELTA_WEIGHT)))

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        rows = matchable(rows, self._keys, (), self.ctx.count)
        rows = _summed(rows.select([*self._columns[side], DELTA_WEIGHT]))
        if not rows.num_rows:
            return
        others = self._sides[1 - side]
        positions, numbers = others.find(rows, by=self._keys)
        for start in range(0, len(numbers), EMIT_ROWS):
            part = slice(start, start + EMIT_ROWS)
            self._emit(rows, positions[part], others.take(numbers[part]), side)
        self._add(rows, side)

    def tables(self, inputs: Sequence[pa.Schema]) -> Mapping[str, pa.Schema]:
        return {
            name: grouped_schema(inputs[side], [*self._columns[side], DELTA_WEIGHT]) for side, name in enumerate(_SIDES)
        }

    def snapshot(self) -> OperatorState:
        states = [rows.snapshot({}) for rows in self._sides]
        return OperatorState(
            {name: chunks for state in states for name, chunks in state.tables.items()},
            {name: value for state in states for name, value in state.values.items()},
        )

    def restore(self, parts: Sequence[OperatorState]) -> None:
        for rows in self._sides:
            rows.restore(parts, self.ctx.groups)

    def _emit(self, rows: pa.RecordBatch, positions: Ints, others: pa.RecordBatch, side: int) -> None:
        """Emits pairs: row i of ``others`` with row ``positions[i]`` of ``rows``, which are those of ``side``."""
        weights = fixed(rows.column(DELTA_WEIGHT))[positions] * fixed(others.column(DELTA_WEIGHT))
        if side:
            pairs = self._pairs.batch((others, rows), (None, positions))
        else:
            pairs = self._pairs.batch((rows, others), (positions, None))
        self.out.emit(pa.RecordBatch.from_arrays([*pairs.columns, pa.array(weights)], schema=self._schema))

    def _add(self, rows: pa.RecordBatch, side: int) -> None:
        own = self._sides[side]
        positions, numbers = own.find(rows)
        weights = fixed(rows.column(DELTA_WEIGHT)).copy()
        if len(numbers):
            weights[positions] += fixed(own.take(numbers, [DELTA_WEIGHT]).column(DELTA_WEIGHT))
            own.remove(numbers)
        present = np.flatnonzero(weights)
        if len(present):
            kept = _weighted(rows.take(present), weights[present])
            own.append(with_groups(kept, self._keys, self.ctx.key_groups))
        own.compact()


def _summed(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Each distinct row once, with the sum of its weights (the last column). Rows with the sum 0 are left out."""
    groups = group(rows.columns[:-1], rows.num_rows)
    weights = np.zeros(groups.size, np.int64)
    np.add.at(weights, groups.ids, fixed(rows.column(DELTA_WEIGHT)))
    present = np.flatnonzero(weights)
    return _weighted(rows.take(groups.first[present]), weights[present])


def _weighted(rows: pa.RecordBatch, weights: Ints) -> pa.RecordBatch:
    columns: list[Any] = [*rows.columns[:-1], pa.array(weights, pa.int64())]
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)
