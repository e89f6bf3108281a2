"""``with_event_time``: assigns event time downstream of the source, from a computed column."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from clonos_py.columns.row_watermarks import RowsBehind, with_watermarks
from clonos_py.columns.times import extent
from clonos_py.model.operators import EventTimeAssigner
from clonos_py.model.state import OperatorState
from clonos_py.model.times import MAX_TIME, MIN_TIME


class AssignEventTime(EventTimeAssigner):
    """Passes rows on. Replaces the watermarks of its input by those that follow from ``column``. ``marks``: adds the
    watermark that each row finds in its partition."""

    def __init__(self, column: str, out_of_order_us: int, marks: bool = False) -> None:
        self.column, self.out_of_order_us = column, out_of_order_us
        self._behind = RowsBehind(out_of_order_us) if marks else None
        self._seen: tuple[int, int] | None = None
        self._highest = MIN_TIME
        self._reached = MIN_TIME

    def continue_from(self, highest_us: int) -> None:
        self._highest = highest_us

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        column = rows.column(self.column)
        if self._behind is None:
            times = extent(column)
        else:
            reached = self._highest if self._seen is None else max(self._highest, self._seen[1])
            watermarks, times = self._behind.find(column, reached)
            rows = with_watermarks(rows, watermarks)
        if times is not None:
            before = self._seen or times
            self._seen = min(before[0], times[0]), max(before[1], times[1])
        self.out.emit(rows)

    def take_extent(self) -> tuple[int, int] | None:
        seen, self._seen = self._seen, None
        return seen

    def set_watermark(self, watermark: int) -> None:
        self._reached = max(self._reached, watermark)

    def on_watermark(self, watermark: int) -> int:
        return MAX_TIME if watermark == MAX_TIME else self._reached

    def released(self) -> int:
        return self._reached

    def restore(self, parts: Sequence[OperatorState]) -> None:
        self._seen, self._reached = None, MIN_TIME
