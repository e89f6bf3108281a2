"""Incremental join of two delta streams: deleting a row on one side retracts every result made with it.

The weight of a delta is the number of copies of the row that are added, or, below 0, deleted. The weight of a pair is
the product of both weights. A row has a match if the weights of the other side's rows with its key add up to more than
0. Sums and products do not depend on the order of deltas. So neither does the final result, even if a delete arrives
before its insert. Until all deltas have arrived, results may be emitted and retracted.

The state holds the rows with a weight other than 0, by key, and the number of rows by key where it decides which rows
of the other side have a match. A batch emits first what it retracts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from clonos_py.columns.matching import with_keys
from clonos_py.columns.views import Ints, concat, fixed
from clonos_py.model.joins import JoinColumns, JoinType
from clonos_py.model.operators import Operator
from clonos_py.model.state import OperatorState, united
from clonos_py.model.tables import DELTA_WEIGHT, without
from clonos_py.operators.keyed_chunks import parted
from clonos_py.operators.pairs import Pairs, among, without_match
from clonos_py.operators.row_filters import matchable
from clonos_py.operators.weighted_rows import WeightedRows, summed

_SIDES = ("left", "right")


class _Results(NamedTuple):
    """Results that are not made yet: their weights, and what makes those with some positions as one batch."""

    weights: Ints
    batch: Callable[[Ints], pa.RecordBatch]


class DeltaJoin(Operator):
    """Joins on equal ``keys``, those of the left and of the right side (null equals nothing). ``sides``: the columns of
    each side without its weight; rows that are equal in all of them are the same row. ``columns``: those of ``schema``
    without its weight. ``weight``: the column of the weight in the input, and in the output unless it is not in
    ``schema``; then the result is emitted once, when all input has ended."""

    def __init__(
        self,
        keys: tuple[Sequence[str], Sequence[str]],
        sides: tuple[Sequence[str], Sequence[str]],
        columns: JoinColumns,
        schema: pa.Schema,
        how: JoinType = JoinType.INNER,
        weight: str = DELTA_WEIGHT,
    ) -> None:
        self._keys = tuple(tuple(names) for names in keys)
        self._columns = tuple(tuple(names) for names in sides)
        self._how = how
        self._weight = weight
        self._at_end = weight not in schema.names
        self._weight_type = None if self._at_end else schema.field(weight).type
        self._sides = [WeightedRows(*given) for given in zip(sides, _SIDES, (weight, weight), keys, strict=True)]
        self._counts = [
            WeightedRows(names, f"{side}.rows", weight, names) if counted else None
            for names, side, counted in zip(keys, _SIDES, _counted(how), strict=True)
        ]
        self._schema = schema
        self._pairs = Pairs(columns, without(schema, weight), how, (self._keys[0], self._keys[1]))

    @property
    def final(self) -> bool:
        return self._at_end

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        rows = matchable(rows, self._keys[side], (), self.ctx.count, self._how.unmatched[side])
        rows = summed(rows, self._columns[side], self._weight)
        if not rows.num_rows:
            return
        if self._at_end:
            self._add(rows, side)
            return
        results = self._of(rows, side)
        counted = self._add(rows, side)
        self._emit([*results, *self._settled(counted, side)])

    def on_end(self) -> None:
        if not self._at_end:
            return
        for side in (0, 1) if self._how.unmatched[1] else (0,):
            for rows in self._sides[side].all():
                results = self._of(rows, side)
                self._emit(results[-1:] if side else results)

    def tables(self, inputs: Sequence[pa.Schema]) -> Mapping[str, pa.Schema]:
        return {
            name: schema
            for kept in (self._sides, self._counts)
            for side, rows in enumerate(kept)
            if rows is not None
            for name, schema in rows.tables(inputs[side]).items()
        }

    def snapshot(self) -> OperatorState:
        return united(*(rows.snapshot() for rows in self._kept))

    def restore(self, parts: Sequence[OperatorState]) -> None:
        for rows in self._kept:
            rows.restore(parts, self.ctx.groups)

    @property
    def _kept(self) -> list[WeightedRows]:
        return [*self._sides, *(counts for counts in self._counts if counts is not None)]

    def _of(self, rows: pa.RecordBatch, side: int) -> list[_Results]:
        """The results of these rows: pairs with rows of the other side, then, if the join gives them, those of rows
        without a match, or of left rows with one."""
        weights = fixed(rows.column(self._weight))
        results = []
        if self._how.pairs:
            others = self._sides[1 - side]
            positions, numbers = others.find(rows, self._keys[side])
            if len(without_null := self._with_keys(rows, side)) < rows.num_rows:
                kept = among(without_null, rows.num_rows)[positions]
                positions, numbers = positions[kept], numbers[kept]
            if len(numbers):
                pairs = weights[positions] * others.weights_of(numbers)
                results.append(_Results(pairs, lambda part: self._pair(rows, positions[part], numbers[part], side)))
        if (alone := self._alone(rows, side)) is not None:
            results.append(_Results(weights[alone], lambda part: self._single(rows, side, alone[part])))
        return results

    def _alone(self, rows: pa.RecordBatch, side: int) -> Ints | None:
        """Of these rows those that are a result by themselves; None if the join gives none of this side."""
        counts = self._counts[1 - side]
        if counts is None:
            return None
        keyed = self._with_keys(rows, side)
        matched = keyed[counts.weights(rows.take(keyed), self._keys[side]) > 0]
        return matched if self._how is JoinType.SEMI else without_match(matched, rows.num_rows)

    def _with_keys(self, rows: pa.RecordBatch, side: int) -> Ints:
        found = with_keys(rows, self._keys[side])
        return np.arange(rows.num_rows) if found is None else found

    def _settled(self, counted: tuple[pa.RecordBatch, Ints] | None, side: int) -> list[_Results]:
        """The results of rows of the other side that now have a first match, or no match any more. ``counted``: the
        change of the number of rows by key, and the numbers before."""
        if counted is None:
            return []
        keys, before = counted
        after = before + fixed(keys.column(self._weight))
        sign = (after <= 0).astype(np.int64) - (before <= 0)
        if self._how is JoinType.SEMI:
            sign = -sign
        changed = np.flatnonzero(sign)
        others = self._sides[1 - side]
        positions, numbers = others.find(keys.take(changed), self._keys[side])
        if not len(numbers):
            return []
        weights = sign[changed][positions] * others.weights_of(numbers)
        return [_Results(weights, lambda part: self._single(others.take(numbers[part]), 1 - side, None))]

    def _add(self, rows: pa.RecordBatch, side: int) -> tuple[pa.RecordBatch, Ints] | None:
        """Adds rows to the state. For ``counted`` see ``_settled``."""
        keyed = rows.take(self._with_keys(rows, side))
        if side == 0 or self._how.pairs:
            self._sides[side].add(rows if self._at_end else keyed, self.ctx.key_groups)
        if (counts := self._counts[side]) is None:
            return None
        keys = summed(keyed, self._keys[side], self._weight)
        return keys, counts.add(keys, self.ctx.key_groups)

    def _pair(self, rows: pa.RecordBatch, positions: Ints, numbers: Ints, side: int) -> pa.RecordBatch:
        others = self._sides[1 - side].take(numbers)
        if side:
            return self._pairs.batch((others, rows), (None, positions))
        return self._pairs.batch((rows, others), (positions, None))

    def _single(self, rows: pa.RecordBatch, side: int, numbers: Ints | None) -> pa.RecordBatch:
        return concat(list(self._pairs.alone(rows, side, numbers)))

    def _emit(self, results: Sequence[_Results]) -> None:
        """Emits results, those that are retracted first."""
        for sign in (1,) if self._at_end else (-1, 1):
            for found in results:
                for part in parted(np.flatnonzero(found.weights * sign > 0)):
                    self.out.emit(self._with_weights(found.batch(part), found.weights[part]))

    def _with_weights(self, rows: pa.RecordBatch, weights: Ints) -> pa.RecordBatch:
        if self._at_end:
            return rows
        columns: list[Any] = [*rows.columns, pa.array(weights, self._weight_type)]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def _counted(how: JoinType) -> tuple[bool, bool]:
    """By side: whether the number of its rows by key decides which rows of the other side are in the result."""
    left, right = how.unmatched
    return right, left or how is JoinType.SEMI
