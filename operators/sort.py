"""Rows in the order of event time: each waits until the watermark says that no earlier one can come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from clonos_py.columns.views import fixed
from clonos_py.model.operators import Operator, OperatorContext, Output
from clonos_py.model.state import OperatorState
from clonos_py.operators.event_time_buffer import EventTimeBuffer
from clonos_py.operators.keyed_chunks import grouped_schema, owned, stored
from clonos_py.operators.keyed_rows import ROWS_TABLE
from clonos_py.operators.pairs import EMIT_ROWS
from clonos_py.operators.row_filters import matchable, on_time


class Sort(Operator):
    """Emits rows, with the columns of ``schema``, in the order of their ``time``, at equal times of arrival. Without
    ``keys`` one instance gets all rows; with keys each has those of its own. A row behind the watermark is dropped and
    counted as ``late_rows`` or, if late rows ``pass_late``, counted and emitted at once."""

    def __init__(self, keys: Sequence[str], time: str, schema: pa.Schema, pass_late: bool = False) -> None:
        self._keys, self._time, self._pass_late = tuple(keys), time, pass_late
        self._schema = schema
        self._kept = list(dict.fromkeys([*self._keys, time, *schema.names]))

    def open(self, ctx: OperatorContext, out: Output) -> None:
        super().open(ctx, out)
        self._waiting = EventTimeBuffer(self._time, self._keys, ctx.key_groups)

    @property
    def final(self) -> bool:
        return True

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        rows = matchable(rows, [], [self._time], self.ctx.count)
        if self._pass_late:
            late = fixed(rows.column(self._time)) < self.ctx.watermark
            if late.any():
                self.out.emit(rows.take(np.flatnonzero(late)).select(self._schema.names))
        self._waiting.add(on_time(rows, self._time, self.ctx).select(self._kept))

    def on_watermark(self, watermark: int) -> int:
        due = self._waiting.take(watermark)
        for start in range(0, 0 if due is None else due.num_rows, EMIT_ROWS):
            assert due is not None
            self.out.emit(due.slice(start, EMIT_ROWS).select(self._schema.names))
        return watermark

    def tables(self, inputs: Sequence[pa.Schema]) -> Mapping[str, pa.Schema]:
        return {ROWS_TABLE: grouped_schema(inputs[0], self._kept)}

    def snapshot(self) -> OperatorState:
        return OperatorState({ROWS_TABLE: self._waiting.chunks()})

    def restore(self, parts: Sequence[OperatorState]) -> None:
        self._waiting.load(owned(stored(parts, ROWS_TABLE), self.ctx.groups))
