"""Shared parts of joins: result rows from pairs of rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from clonos_py.columns.matching import match
from clonos_py.columns.ordering import stable_order
from clonos_py.columns.views import Bools, Ints
from clonos_py.model.joins import JoinColumns, JoinType

EMIT_ROWS = 65_536
"""The most rows in a batch of results."""
NO_ROW = -1
"""In the place of a row of the other side: the result has none."""


class Pairs:
    """Builds rows of ``schema`` from pairs of rows. Fields that ``columns`` does not name are constants.

    In a left or full join a pair may lack its right row, which is written as ``NO_ROW``: its columns are null. A key of
    a full join that has the same name on both sides, ``keys``, is taken from the row that is there, and so are the
    columns ``of_either``.
    """

    def __init__(
        self,
        columns: JoinColumns,
        schema: pa.Schema,
        how: JoinType = JoinType.INNER,
        keys: tuple[Sequence[str], Sequence[str]] = ((), ()),
        of_either: Sequence[str] = (),
    ) -> None:
        self._origins = {name: (side, column) for name, side, column in columns}
        self._schema = schema
        self._how = how
        shared = [a for a, b in zip(*keys, strict=True) if a == b] if how is JoinType.FULL else []
        self._of_either = {*shared, *of_either}

    def needed(self, side: int, *others: str | None) -> list[str]:
        """The columns of a side that results need, and ``others``; without duplicates, in a fixed order."""
        own = [
            column
            for _, (at, column) in sorted(self._origins.items())
            if at == side or (at == 0 and column in self._of_either)
        ]
        return list(dict.fromkeys([*(name for name in others if name is not None), *own]))

    def batches(
        self,
        sides: Sequence[pa.RecordBatch | None],
        rows: Sequence[Ints | None],
        constants: dict[str, int] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The pairs as batches, in order. None in ``rows`` stands for all rows of that side, in order; None in
        ``sides`` for a side without rows."""
        count = next(len(numbers) for numbers in rows if numbers is not None)
        for start in range(0, count, EMIT_ROWS):
            parts = [None if numbers is None else numbers[start : start + EMIT_ROWS] for numbers in rows]
            whole = [
                side.slice(start, EMIT_ROWS) if part is None and side is not None else side
                for side, part in zip(sides, parts, strict=True)
            ]
            yield self.batch(whole, parts, constants)

    def batch(
        self,
        sides: Sequence[pa.RecordBatch | None],
        rows: Sequence[Ints | None],
        constants: dict[str, int] | None = None,
    ) -> pa.RecordBatch:
        """The pairs as one batch. ``rows`` and ``sides`` are those of ``batches``."""
        taken = [None if numbers is None else self._positions(numbers) for numbers in rows]
        count = next(len(numbers) for numbers in rows if numbers is not None)
        columns = [self._column(field, sides, taken, count, constants or {}) for field in self._schema]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def joined(
        self,
        left: pa.RecordBatch | None,
        right: pa.RecordBatch | None,
        keys: tuple[Sequence[str], Sequence[str]],
        constants: dict[str, int] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The join of two batches, either of which may be missing, on equal ``keys``; rows without a match come last.
        Null equals nothing."""
        matches = np.empty(0, np.int64), np.empty(0, np.int64)
        if left is not None and right is not None:
            matches = match(left, keys[0], right, keys[1])
            if self._how.pairs:
                yield from self.batches((left, right), matches, constants)
            elif self._how is JoinType.SEMI:
                yield from self.alone(left, 0, np.unique(matches[0]), constants)
        for side, (rows, matched) in enumerate(zip((left, right), matches, strict=True)):
            if rows is not None and self._how.unmatched[side]:
                yield from self.alone(rows, side, without_match(matched, rows.num_rows), constants)

    def alone(
        self, rows: pa.RecordBatch, side: int, numbers: Ints | None = None, constants: dict[str, int] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Results of rows of one side without a row of the other: of all, or of those with these numbers."""
        nothing = np.full(rows.num_rows if numbers is None else len(numbers), NO_ROW)
        sides, taken = ((None, rows), (nothing, numbers)) if side else ((rows, None), (numbers, nothing))
        return self.batches(sides, taken, constants)

    def _positions(self, numbers: Ints) -> Any:
        lacking = self._how in (JoinType.LEFT, JoinType.FULL) and len(numbers) > 0 and numbers.min() == NO_ROW
        return pa.array(numbers, mask=numbers == NO_ROW) if lacking else pa.array(numbers)

    def _column(
        self,
        field: pa.Field[Any],
        sides: Sequence[pa.RecordBatch | None],
        taken: list[Any],
        rows: int,
        constants: dict[str, int],
    ) -> Any:
        if field.name not in self._origins:
            return pa.repeat(pa.scalar(constants[field.name], field.type), rows)
        side, name = self._origins[field.name]
        if sides[side] is None and name in self._of_either:
            side = 1 - side
        origin, positions = sides[side], taken[side]
        if origin is None:
            return pa.nulls(rows, field.type)
        return origin.column(name) if positions is None else origin.column(name).take(positions)


def without_match(matched: Ints, count: int) -> Ints:
    """Of ``count`` rows those that are not ``matched``, in their order."""
    return np.flatnonzero(~among(matched, count))


def looked_up(how: JoinType, pairs: tuple[Ints, Ints], count: int) -> tuple[Ints, Ints]:
    """What a join of left rows with those that it finds for them gives, in the order of left rows. ``pairs``: the inner
    join in that order. ``count``: the number of left rows."""
    left, right = pairs
    match how:
        case JoinType.INNER | JoinType.RIGHT:
            return pairs
        case JoinType.SEMI:
            left = np.flatnonzero(among(left, count))
            return left, np.full(len(left), NO_ROW)
        case JoinType.ANTI:
            left = without_match(left, count)
            return left, np.full(len(left), NO_ROW)
    alone = without_match(left, count)
    if not len(alone):
        return pairs
    left, right = np.concatenate([left, alone]), np.concatenate([right, np.full(len(alone), NO_ROW)])
    order = stable_order(left)
    return left[order], right[order]


def among(rows: Ints, count: int) -> Bools:
    """Of each of ``count`` rows whether it is one of these."""
    found = np.zeros(count, bool)
    found[rows] = True
    return found
