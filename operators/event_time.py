"""``with_event_time``: assigns event time downstream of the source, from a computed column."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from clonos_py.columns.times import extent
from clonos_py.model.operators import EventTimeAssigner
from clonos_py.model.state import OperatorState
from clonos_py.model.times import MAX_TIME, MIN_TIME


class AssignEventTime(EventTimeAssigner):
    """Passes rows on. Replaces the watermarks of its input by those that follow from ``column``."""

    def __init__(self, column: str, out_of_order_us: int) -> None:
        self.column, self.out_of_order_us = column, out_of_order_us
        self._seen: tuple[int, int] | None = None
        self._reached = MIN_TIME

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        times = extent(rows.column(self.column))
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
