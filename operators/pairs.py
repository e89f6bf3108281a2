"""Shared parts of joins: filters for rows that can match, and result rows from pairs of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from clonos_py.columns.matching import with_keys
from clonos_py.columns.views import Ints
from clonos_py.model.operators import OperatorContext
from clonos_py.model.windows import JoinColumns
from clonos_py.operators.event_time_range import event_times

EMIT_ROWS = 65_536
"""The most rows in a batch of results."""


class Pairs:
    """Builds rows of ``schema`` from pairs of rows. Fields that ``columns`` does not name are constants."""

    def __init__(self, columns: JoinColumns, schema: pa.Schema) -> None:
        self._origins = {name: (side, column) for name, side, column in columns}
        self._schema = schema

    def needed(self, side: int, *others: str | None) -> list[str]:
        """The columns of a side that results need, and ``others``; without duplicates, in a fixed order."""
        own = [column for _, (at, column) in sorted(self._origins.items()) if at == side]
        return list(dict.fromkeys([*(name for name in others if name is not None), *own]))

    def batches(
        self, sides: Sequence[pa.RecordBatch], rows: Sequence[Ints | None], constants: dict[str, int] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The pairs as batches, in order. None in ``rows`` stands for all rows of that side, in order."""
        count = next(len(numbers) for numbers in rows if numbers is not None)
        for start in range(0, count, EMIT_ROWS):
            parts = [None if numbers is None else numbers[start : start + EMIT_ROWS] for numbers in rows]
            whole = [
                side.slice(start, EMIT_ROWS) if part is None else side for side, part in zip(sides, parts, strict=True)
            ]
            yield self.batch(whole, parts, constants)

    def batch(
        self, sides: Sequence[pa.RecordBatch], rows: Sequence[Ints | None], constants: dict[str, int] | None = None
    ) -> pa.RecordBatch:
        """The pairs as one batch. None in ``rows`` stands for all rows of that side, in order."""
        taken = [None if numbers is None else pa.array(numbers) for numbers in rows]
        count = next(len(numbers) for numbers in rows if numbers is not None)
        columns = [self._column(field, sides, taken, count, constants or {}) for field in self._schema]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _column(
        self,
        field: pa.Field[Any],
        sides: Sequence[pa.RecordBatch],
        taken: list[Any],
        rows: int,
        constants: dict[str, int],
    ) -> Any:
        if field.name not in self._origins:
            return pa.repeat(pa.scalar(constants[field.name], field.type), rows)
        side, name = self._origins[field.name]
        column = sides[side].column(name)
        return column if taken[side] is None else column.take(taken[side])


def matchable(
    rows: pa.RecordBatch, keys: Sequence[str], times: Sequence[str], count: Callable[[str, int], None]
) -> pa.RecordBatch:
    """The rows without nulls in keys and times. Other rows cannot match; they are dropped and counted."""
    kept = with_keys(rows, keys)
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
