"""Numbers rows in the order of arrival, for aggregates that depend on that order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from clonos_py.model.aggregates import Aggregate
from clonos_py.model.hidden import hidden
from clonos_py.model.state import OperatorState
from clonos_py.operators.event_time_range import event_times

ARRIVAL_COLUMN = hidden("arrival")
"""int64 column of rows that are about to be aggregated: the arrival number."""
TIME_COLUMN = hidden("time")
"""int64 column of such rows: the event time by which values are ordered first; 0 if only their arrival counts."""

_STATE = "arrivals"


class Arrivals:
    """Counts the rows of one operator instance. The numbers of a key only grow, even after a change of parallelism:
    every instance continues after the highest number of all former instances."""

    def __init__(self, aggregates: Iterable[Aggregate]) -> None:
        aggregates = tuple(aggregates)
        self._needed = any(aggregate.ordered for aggregate in aggregates)
        self._timed = any(aggregate.ordered and aggregate.option is not None for aggregate in aggregates)
        self._next = 0

    def numbered(self, rows: pa.RecordBatch, time: str | None = None) -> pa.RecordBatch:
        """Adds arrival numbers to the rows, if an aggregate needs them. ``time``: the column of their event time, by
        which bounded lists are ordered."""
        if not self._needed:
            return rows
        numbers = np.arange(self._next, self._next + rows.num_rows)
        self._next += rows.num_rows
        rows = rows.append_column(pa.field(ARRIVAL_COLUMN, pa.int64()), pa.array(numbers))
        if not self._timed:
            return rows
        times = np.zeros(rows.num_rows, np.int64) if time is None else event_times(rows, time)
        return rows.append_column(pa.field(TIME_COLUMN, pa.int64()), pa.array(times))

    def values(self) -> dict[str, Any]:
        """The state for a snapshot."""
        return {_STATE: self._next} if self._needed else {}

    def restore(self, parts: Sequence[OperatorState]) -> None:
        self._next = max((part.values.get(_STATE, 0) for part in parts), default=0)


def with_arrivals(rows: pa.Schema) -> pa.Schema:
    """The columns of rows that are numbered."""
    return rows.append(pa.field(ARRIVAL_COLUMN, pa.int64())).append(pa.field(TIME_COLUMN, pa.int64()))
