"""The watermark that a row finds: the event time that its partition had reached before it, less the declared disorder.

A row behind this watermark may be late. Which rows these are follows from the rows of the partition alone, and not from
how they are cut into reads or from when a task emits watermarks. The watermarks travel as a hidden column of the rows,
to the operators that drop late rows. Most rows are not behind, so the column is mostly null, and whole batches of such
rows share one buffer.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from clonos_py.columns.times import instants
from clonos_py.columns.views import Bools, Column, Ints, fixed, valid
from clonos_py.model.hidden import hidden
from clonos_py.model.times import MIN_TIME

WATERMARK_COLUMN = hidden("watermark")
"""int64 column: the watermark that the row finds, in microseconds; null if the row is not behind it."""
WATERMARK_FIELD: pa.Field[Any] = pa.field(WATERMARK_COLUMN, pa.int64())

_BLOCK_ROWS = 64


class RowWatermarks(NamedTuple):
    """The column for some rows of a partition, and their earliest and latest event time, None if all are null."""

    column: Column
    extent: tuple[int, int] | None


class RowsBehind:
    """Computes the column for the rows of one stream. ``out_of_order_us``: how far rows may be behind earlier ones."""

    def __init__(self, out_of_order_us: int) -> None:
        self._out_of_order_us = out_of_order_us
        self._none = pa.nulls(0, pa.int64())

    def find(self, times: Column, reached: int) -> RowWatermarks:
        """``times``: the event times of consecutive rows of a partition. ``reached``: the highest one before them;
        MIN_TIME if there is none."""
        micros = instants(times)
        known = valid(micros)
        values: Ints = fixed(micros)
        if known is not None:
            values = np.where(known, values, MIN_TIME)
        present = values if known is None else values[known]
        if not len(present):
            return RowWatermarks(self._without(len(values)), None)
        extent = int(present.min()), int(present.max())
        return RowWatermarks(self._column(values, known, reached, extent), extent)

    def _column(self, values: Ints, known: Bools | None, reached: int, extent: tuple[int, int]) -> Column:
        earliest, latest = extent
        if earliest >= max(reached, latest) - self._out_of_order_us or self._in_order(values, reached):
            return self._without(len(values))
        before = np.empty_like(values)
        before[0] = reached
        np.maximum.accumulate(values[:-1], out=before[1:])
        watermarks = np.maximum(before, max(reached, MIN_TIME + self._out_of_order_us)) - self._out_of_order_us
        behind = values < watermarks
        if known is not None:
            behind &= known
        return pa.array(watermarks, mask=~behind) if behind.any() else self._without(len(values))

    def _in_order(self, values: Ints, reached: int) -> bool:
        """Whether no row is behind: a quick answer, which may be False without need."""
        if not self._out_of_order_us:
            return int(values[0]) >= reached and not bool((values[1:] < values[:-1]).any())
        whole = len(values) // _BLOCK_ROWS * _BLOCK_ROWS
        blocks = values[:whole].reshape(-1, _BLOCK_ROWS)
        rest = values[whole:]
        highest = np.append(blocks.max(axis=1), rest.max(initial=MIN_TIME))
        lowest = np.append(blocks.min(axis=1), rest.min(initial=np.iinfo(np.int64).max))
        highest[0] = max(int(highest[0]), reached, MIN_TIME + self._out_of_order_us)
        return bool((lowest >= np.maximum.accumulate(highest) - self._out_of_order_us).all())

    def _without(self, rows: int) -> Column:
        """The column of rows that are not behind."""
        if rows > len(self._none):
            self._none = pa.nulls(rows, pa.int64())
        return self._none.slice(0, rows)


def has_watermarks(rows: pa.Schema) -> bool:
    """Whether rows have the column."""
    return rows.get_field_index(WATERMARK_COLUMN) >= 0


def schema_without_watermarks(rows: pa.Schema) -> pa.Schema:
    """The schema of rows without the column, if they have it."""
    index = rows.get_field_index(WATERMARK_COLUMN)
    return rows if index < 0 else rows.remove(index)


def with_watermarks(rows: pa.RecordBatch, column: Column) -> pa.RecordBatch:
    """The rows with this column, in the place of one that they have."""
    index = rows.schema.get_field_index(WATERMARK_COLUMN)
    return rows.append_column(WATERMARK_FIELD, column) if index < 0 else rows.set_column(index, WATERMARK_FIELD, column)


def without_watermarks(rows: pa.RecordBatch) -> tuple[pa.RecordBatch, Column | None]:
    """The rows without the column, and the column if they have it."""
    index = rows.schema.get_field_index(WATERMARK_COLUMN)
    return (rows, None) if index < 0 else (rows.remove_column(index), rows.column(index))
