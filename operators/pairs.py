"""Shared parts of joins: filters for rows that can match, and result rows from pairs of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from clonos_py.columns.matching import with_keys
from clonos_py.columns.ordering import stable_order
from clonos_py.columns.views import Bools, Ints
from clonos_py.model.joins import JoinColumns, JoinType
from clonos_py.model.operators import OperatorContext
from clonos_py.operators.event_time_range import event_times

EMIT_ROWS = 65_536
"""The most rows in a batch of results."""
NO_ROW = -1
"""In the place of a row of a side: the result has none of that side."""


class Pairs:
    """Builds rows of ``schema`` from pairs of rows. Fields that ``columns`` does not name are constants.

    With a ``how`` other than inner a pair may lack a row, which is written as ``NO_ROW``: its columns are null. A key
    of a full join that has the same name on both sides, ``keys``, is taken from the row that is there.
    """

    def __init__(
        self,
        columns: JoinColumns,
        schema: pa.Schema,
        how: JoinType = JoinType.INNER,
        keys: tuple[Sequence[str], Sequence[str]] = ((), ()),
    ) -> None:
        self._origins = {name: (side, column) for name, side, column in columns}
        self._schema = schema
        self._how = how
        self._of_either = {a for a, b in zip(*keys, strict=True) if a == b} if how is JoinType.FULL else set[str]()

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

    def _positions(self, numbers: Ints) -> Any:
        return pa.array(numbers) if self._how is JoinType.INNER else pa.array(numbers, mask=numbers == NO_ROW)

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
        values = [_taken(sides[at], name, taken[at]) for at in ((0, 1) if name in self._of_either else (side,))]
        found = [column for column in values if column is not None]
        if not found:
            return pa.nulls(rows, field.type)
        return found[0] if len(found) == 1 else _either(found[0], found[1], field.type)


def _taken(side: pa.RecordBatch | None, name: str, positions: Any) -> Any:
    if side is None:
        return None
    return side.column(name) if positions is None else side.column(name).take(positions)


def _either(first: Any, second: Any, kind: pa.DataType) -> Any:
    """By row the first value, or where it is null the second."""
    both = pa.concat_arrays([column if column.type == kind else column.cast(kind) for column in (first, second)])
    rows = np.arange(len(first))
    return both.take(pa.array(np.where(first.is_null().to_numpy(zero_copy_only=False), len(first) + rows, rows)))


def result_rows(how: JoinType, pairs: tuple[Ints, Ints], counts: tuple[int, int]) -> tuple[Ints, Ints]:
    """What a join gives for the ``pairs`` of its inner join, which are in the order of their left rows. ``counts``: the
    number of rows of each side.

    The result is in the order of left rows; right rows without a match follow in their order.
    """
    left, right = pairs
    if how is JoinType.INNER:
        return left, right
    if how is JoinType.SEMI:
        left = np.flatnonzero(_named(left, counts[0]))
        return left, np.full(len(left), NO_ROW)
    alone = [np.flatnonzero(~_named(rows, count)) for rows, count in zip(pairs, counts, strict=True)]
    if how is JoinType.ANTI:
        return alone[0], np.full(len(alone[0]), NO_ROW)
    of_left, of_right = (rows if kept else rows[:0] for rows, kept in zip(alone, how.unmatched, strict=True))
    if len(of_left):
        left, right = np.concatenate([left, of_left]), np.concatenate([right, np.full(len(of_left), NO_ROW)])
        order = stable_order(left)
        left, right = left[order], right[order]
    if len(of_right):
        left, right = np.concatenate([left, np.full(len(of_right), NO_ROW)]), np.concatenate([right, of_right])
    return left, right


def _named(rows: Ints, count: int) -> Bools:
    named = np.zeros(count, bool)
    named[rows] = True
    return named


def matchable(
    rows: pa.RecordBatch,
    keys: Sequence[str],
    times: Sequence[str],
    count: Callable[[str, int], None],
    unmatched: bool = False,
) -> pa.RecordBatch:
    """The rows without nulls in keys and times. Other rows cannot match; they are dropped and counted. ``unmatched``:
    rows without a match are in the result, so those with a null key stay."""
    kept = None if unmatched else with_keys(rows, keys)
    if kept is not None:
        count("null_key_rows", rows.num_rows - len(kept))
        rows = rows.take(kept)
    timed = with_keys(rows, times)
    if timed is not None:
        count("null_time_rows", rows.num_rows - len(timed))
        rows = rows.take(timed)
    return rows


def on_time(rows: pa.RecordBatch, time: str, ctx: OperatorContext) -> pa.RecordBatch:
    """The rows that are not behind the watermark. Late rows are dropped and counted."""
    kept = event_times(rows, time) >= ctx.watermark
    late = rows.num_rows - int(np.count_nonzero(kept))
    if not late:
        return rows
    ctx.count("late_rows", late)
    return rows.take(np.flatnonzero(kept))
