"""The head of a loop: rows that enter it and rows that come back go the same way (E11)."""

from __future__ import annotations

import pyarrow as pa

from clonos_py.model.operators import Operator


class LoopEntry(Operator):
    """Emits what it is given. What makes it the head is the feedback edge that leads to it."""

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        self.out.emit(rows)
