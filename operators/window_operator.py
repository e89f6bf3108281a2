"""Common base of window aggregates: their parameters, and when windows are due."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from clonos_py.columns.row_watermarks import without_watermarks
from clonos_py.columns.views import Ints
from clonos_py.model.aggregates import Aggregate
from clonos_py.model.errors import GraphError
from clonos_py.model.operators import Operator, OperatorContext
from clonos_py.model.times import MAX_TIME
from clonos_py.model.windows import Window
from clonos_py.operators.aggregation import Partials
from clonos_py.operators.arrivals import Arrivals
from clonos_py.operators.event_time_range import event_times
from clonos_py.operators.lateness import LateRule, late_rows
from clonos_py.operators.row_filters import matchable

LATE_PORT = 1


class WindowOperator(Operator):
    """Time advances with the watermark or, in processing time, with timers. ``schema`` is filled by name from the keys,
    ``window_start``, ``window_end`` and the aggregates. ``combined``: input rows are partial rows already."""

    def __init__(
        self,
        keys: Sequence[str],
        window: Window,
        aggregates: Sequence[Aggregate],
        schema: pa.Schema,
        time_column: str | None = None,
        lateness_us: int = 0,
        combined: bool = False,
    ) -> None:
        if not (combined or window.processing_time or time_column):
            raise GraphError("windows in event time need a time column; give the source one or use processing_time")
        self._partials = Partials(keys, aggregates)
        self._schema = schema
        self._processing_time = window.processing_time
        self._time_column = time_column or ""
        self._lateness_us = lateness_us
        self._combined = combined
        self._arrivals = Arrivals(aggregates)
        self._late_rule: LateRule | None = None
        """Which of the rows that come with their watermarks are late."""

    @property
    def final(self) -> bool:
        return True

    def on_watermark(self, watermark: int) -> int:
        if not self._processing_time:
            self._advance(watermark)
        return watermark

    def on_timer(self, at: int) -> None:
        self._advance(at)

    def on_end(self) -> None:
        self._advance(MAX_TIME)

    def _timely(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that are not late by the watermarks that come with them. Late rows go to their port."""
        rows, watermarks = without_watermarks(rows)
        late = None if self._late_rule is None else late_rows(rows, watermarks, self._late_rule)
        if late is None:
            return rows
        self.ctx.count("late_rows", int(late.sum()))
        self.out.emit(rows.filter(pa.array(late)), LATE_PORT)
        return rows.filter(pa.array(~late))

    def _advance(self, reached: int) -> None:
        """Emits the windows that are due when time has reached ``reached``."""
        raise NotImplementedError


def with_times(rows: pa.RecordBatch, column: str, ctx: OperatorContext) -> tuple[pa.RecordBatch, Ints]:
    """The rows that have an event time, and these times. Other rows are dropped and counted as ``null_time_rows``.
    Raises UserCodeError for a time out of range."""
    rows = matchable(rows, [], [column], ctx.count)
    return rows, event_times(rows, column)
