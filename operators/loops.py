"""The head of a loop: merges rows that enter the loop with rows from the feedback edge (E11)."""

from __future__ import annotations

import pyarrow as pa

from clonos_py.model.operators import Operator


class LoopEntry(Operator):
    """Passes rows on. It is the head because the feedback edge leads to it."""

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        self.out.emit(rows)
