"""The step of generated jobs that aggregates over the last rows of each row: the engine's operator, behind a watermark
that depends on the order of inputs."""

from __future__ import annotations

import pyarrow as pa

from clonos_py.columns.views import Ints, fixed
from clonos_py.model.aggregates import Aggregate
from clonos_py.model.operators import OperatorContext, Output
from clonos_py.model.windows import LastSpan
from clonos_py.operators.over import Over
from clonos_py.runtime.sim.histories import HISTORY_ROWS
from clonos_py.runtime.sim.step import answered

_IDS = 1_000
"""All earlier ones of its source, so that one that is lost is missed in each later row."""
_LATE = -1
_TOTAL = Aggregate("sum", "id", "total", pa.int64())


class SumLastIds(Over):
    """Answers the sum of the last ids of the row's key. Late rows pass."""

    def __init__(self, letter: int) -> None:
        schema = HISTORY_ROWS.append(pa.field(_TOTAL.name, _TOTAL.type))
        super().__init__(("key",), LastSpan(_IDS), (_TOTAL,), schema, "id")
        self._letter = letter

    def open(self, ctx: OperatorContext, out: Output) -> None:
        super().open(ctx, _WithAnswers(out, self._letter))

    def on_late(self, rows: pa.RecordBatch) -> None:
        late = pa.nulls(rows.num_rows, pa.int64()).fill_null(_LATE)
        self.out.emit(rows.select(HISTORY_ROWS.names).append_column(_TOTAL.name, late))


class _WithAnswers:
    """Adds totals to the histories of rows."""

    def __init__(self, out: Output, letter: int) -> None:
        self._out, self._letter = out, letter

    def emit(self, rows: pa.RecordBatch, port: int = 0) -> None:
        totals: Ints = fixed(rows.column(_TOTAL.name))
        self._out.emit(answered(rows, self._letter, totals.tolist()), port)
