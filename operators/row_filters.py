"""Filters for the rows that an operator takes: those with keys and times, and those that are not late."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from clonos_py.columns.matching import with_keys
from clonos_py.model.operators import OperatorContext
from clonos_py.operators.event_time_range import event_times


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
