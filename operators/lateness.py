"""Which rows are late, decided row by row, by the watermark that each row finds in its partition.

``DropLate`` runs in the task that reads the rows, before a shuffle. The operator behind it still compares rows with its
own watermark. That is never ahead of the watermark that a row finds, unless the partition of the row was idle.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from clonos_py.columns.row_watermarks import without_watermarks
from clonos_py.columns.views import Bools, Column, Ints, fixed, valid
from clonos_py.model.operators import Operator
from clonos_py.model.windows import InPanes
from clonos_py.operators.event_time_range import event_times
from clonos_py.operators.panes import PaneClock

LateRule = Callable[[pa.RecordBatch, Ints], Bools]
"""Which rows are late, given rows that are behind a watermark, and that watermark of each."""


class BehindWatermark:
    """The rule of joins and of functions that take rows in the order of event time: each row that is behind."""

    def __init__(self, time: str) -> None:
        self._time = time

    def __call__(self, rows: pa.RecordBatch, watermarks: Ints) -> Bools:
        late: Bools = event_times(rows, self._time) < watermarks
        return late


class LateForWindows:
    """The rule of windows in panes: a row is late if all windows that contain it have ended, the last one
    more than ``lateness_us`` ago."""

    def __init__(self, window: InPanes, time: str, lateness_us: int = 0) -> None:
        self._clock, self._time = PaneClock(window, lateness_us), time

    def __call__(self, rows: pa.RecordBatch, watermarks: Ints) -> Bools:
        panes = self._clock.assign(event_times(rows, self._time))
        late: Bools = panes < self._clock.late_before_each(watermarks)
        return late


class DropLate(Operator):
    """Drops late rows, and counts them as ``late_rows``. Removes the column of watermarks from the others."""

    def __init__(self, rule: LateRule) -> None:
        self._rule = rule

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        rows, watermarks = without_watermarks(rows)
        late = late_rows(rows, watermarks, self._rule)
        if late is not None:
            self.ctx.count("late_rows", int(late.sum()))
            rows = rows.filter(pa.array(~late))
        self.out.emit(rows)


def late_rows(rows: pa.RecordBatch, watermarks: Column | None, rule: LateRule) -> Bools | None:
    """Which rows are late; None if none is. ``watermarks``: the column of the rows, if they have it."""
    if watermarks is None or watermarks.null_count == len(watermarks):
        return None
    known = valid(watermarks)
    behind = np.arange(len(watermarks)) if known is None else np.flatnonzero(known)
    found = rule(rows.take(pa.array(behind, pa.int64())), fixed(watermarks)[behind])
    if not found.any():
        return None
    late = np.zeros(rows.num_rows, bool)
    late[behind[found]] = True
    return late
