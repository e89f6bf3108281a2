"""``map_batches`` with a number of rows: gathers rows, so that a function whose calls are dear gets many at once.

A batch is cut when it has its rows, by count alone, or when its first rows have waited for long enough, by a timer: an
event of the log. So a replay cuts the same batches, however long a call takes. Rows that wait are state, and hold the
watermark and the end of the task back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from clonos_py.columns.frames import ArrowFrame, TabularKind
from clonos_py.columns.views import concat
from clonos_py.model.operators import OperatorContext, Output
from clonos_py.model.state import GROUP_COLUMN, Chunk, OperatorState
from clonos_py.model.times import MAX_TIME, MIN_TIME
from clonos_py.operators.held_watermarks import HeldWatermarks
from clonos_py.operators.keyed_chunks import grouped_schema, owned, stored
from clonos_py.operators.keyed_rows import ROWS_TABLE
from clonos_py.operators.stateless import MapBatches


class MapGatheredBatches(MapBatches):
    """Applies a function to ``rows`` rows at once, or to fewer that have waited for ``wait_us``, or are the last."""

    def __init__(
        self,
        fn: Callable[..., ArrowFrame],
        schema: pa.Schema,
        rows: int,
        wait_us: int,
        wants_ctx: bool = False,
        kind: TabularKind = TabularKind.BATCH,
    ) -> None:
        super().__init__(fn, schema, wants_ctx, kind)
        self._rows, self._wait_us = rows, wait_us

    def open(self, ctx: OperatorContext, out: Output) -> None:
        super().open(ctx, out)
        self._wait_for([], 0, None)
        self._watermarks = HeldWatermarks()

    def _wait_for(self, waiting: list[pa.RecordBatch], next_: int, due_us: int | None) -> None:
        self._waiting, self._count = waiting, sum(rows.num_rows for rows in waiting)
        self._next = next_
        """The number of the next row."""
        self._due_us = due_us

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        self._waiting.append(rows)
        self._count += rows.num_rows
        self._next += rows.num_rows
        cut = self._count >= self._rows
        while self._count >= self._rows:
            self._call(self._rows)
        if cut:
            self._clear_timer()
        if self._count and self._due_us is None:
            self._due_us = self.ctx.time.now() + self._wait_us
            self.ctx.set_timer(self._due_us)
        self._hold()

    def on_timer(self, at: int) -> None:
        if at == self._due_us:
            self._call_all()

    def on_watermark(self, watermark: int) -> int:
        if watermark == MAX_TIME:
            self._call_all()
        self._watermarks.add(self._next, watermark)
        return self.released()

    def released(self) -> int:
        return self._watermarks.released(self._next - self._count)

    def tables(self, inputs: Sequence[pa.Schema]) -> Mapping[str, pa.Schema]:
        return {ROWS_TABLE: grouped_schema(inputs[0])}

    def snapshot(self) -> OperatorState:
        values = {"next": self._next, "marks": self._watermarks.stored, "due": self._due_us}
        if not self._count:
            return OperatorState(values=values)
        numbers = np.arange(self._next - self._count, self._next)
        groups = (self.ctx.groups.start + numbers % len(self.ctx.groups)).astype(np.int32)
        rows = concat(self._waiting).append_column(pa.field(GROUP_COLUMN, pa.int32()), pa.array(groups))
        return OperatorState({ROWS_TABLE: [Chunk(rows)]}, values)

    def restore(self, parts: Sequence[OperatorState]) -> None:
        chunks = owned(stored(parts, ROWS_TABLE), self.ctx.groups)
        waiting = [chunk.rows.drop_columns([GROUP_COLUMN]) for chunk in chunks]
        due = [part.values["due"] for part in parts if part.values["due"] is not None]
        next_ = max((part.values["next"] for part in parts), default=0)
        self._wait_for(waiting, next_, min(due, default=0) if waiting else None)
        known = [part.values["marks"] for part in parts] if self.ctx.watermark != MIN_TIME else []
        self._watermarks = HeldWatermarks((number, at) for marks in known for number, at in marks)
        if self._due_us is not None:
            self.ctx.set_timer(self._due_us)
        self._hold()

    def _clear_timer(self) -> None:
        if self._due_us is not None:
            self.ctx.clear_timer(self._due_us)
            self._due_us = None

    def _call_all(self) -> None:
        self._clear_timer()
        while self._count:
            self._call(min(self._count, self._rows))
        self._hold()

    def _call(self, count: int) -> None:
        """Calls the function for the first ``count`` rows that wait."""
        rows = concat(self._waiting)
        self._waiting = [rows.slice(count)] if count < rows.num_rows else []
        self._count -= count
        super().on_rows(rows.slice(0, count), 0)

    def _hold(self) -> None:
        self.ctx.hold(self._count > 0, False)
