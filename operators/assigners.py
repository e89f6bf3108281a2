"""Calls a function of the user that assigns windows to rows, and adds their bounds to the rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from clonos_py.columns.distinct import unrolled
from clonos_py.columns.frames import ArrowFrame, TabularKind, batch_of, frame_of
from clonos_py.columns.times import MOMENT
from clonos_py.columns.views import Ints, fixed, plain, valid
from clonos_py.model.windows import BOUNDS


@dataclass(frozen=True)
class Assigner:
    """A function of batches. A row of several windows is in the result for each of them. Raises TypeError or ValueError
    for what is not a window for each row."""

    __wrapped__: Callable[..., Any]
    """The function of the user, to which errors point."""
    kind: TabularKind
    schema: pa.Schema

    def __call__(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        given = self.__wrapped__(frame_of(rows, self.kind))
        if not isinstance(given, ArrowFrame):
            raise TypeError(f"it returned {type(given).__name__}, not a frame with the columns {' and '.join(BOUNDS)}")
        frame = batch_of(given)
        if missing := [name for name in BOUNDS if frame.schema.names.count(name) != 1]:
            raise ValueError(f"it returned no column {missing[0]!r}, but {', '.join(frame.schema.names) or 'none'}")
        if frame.num_rows != rows.num_rows:
            raise ValueError(f"it returned {frame.num_rows} rows for {rows.num_rows}")
        (starts, of), (ends, others) = (_times(name, frame.column(name)) for name in BOUNDS)
        if not np.array_equal(of, others):
            raise ValueError("it returned starts without ends, or ends without starts")
        if (wrong := np.flatnonzero(ends <= starts)).size:
            first = int(wrong[0])
            raise ValueError(f"the window of row {of[first]} ends at {ends[first]}, but starts at {starts[first]}")
        return pa.RecordBatch.from_arrays(
            [*rows.take(of).columns, pa.array(starts), pa.array(ends)], schema=self.schema
        )


def _times(name: str, column: Any) -> tuple[Ints, Ints]:
    """The times, in microseconds, and for each the number of its row. Nulls are left out."""
    rows: Ints = np.arange(len(column))
    if pa.types.is_list(column.type):
        column, rows = unrolled(column)
    if pa.types.is_timestamp(column.type):
        column = column.cast(MOMENT if column.type.tz else pa.timestamp("us")).cast(pa.int64())
    column = plain(column)
    if pa.types.is_null(column.type):
        column = column.cast(pa.int64())
    if not pa.types.is_integer(column.type):
        raise ValueError(f"column {name!r} is {column.type}, and neither times nor Instants, nor lists of these")
    known = valid(column)
    times = fixed(column).astype(np.int64)
    return (times, rows) if known is None else (times[known], rows[known])
