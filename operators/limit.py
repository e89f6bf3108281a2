"""The first rows of a stream."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from clonos_py.model.operators import Operator
from clonos_py.model.state import OperatorState


class LimitCombine(Operator):
    """Emits the first ``n`` rows of a batch, with these columns: no more of it can pass. Keeps no state."""

    def __init__(self, n: int, columns: Sequence[str]) -> None:
        self._n, self._columns = n, list(columns)

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        self.out.emit(rows.select(self._columns).slice(0, self._n))


class Limit(Operator):
    """Emits the first ``n`` rows that arrive. All rows go to one instance; its state is how many have passed."""

    def __init__(self, n: int) -> None:
        self._n, self._passed = n, 0

    @property
    def final(self) -> bool:
        return True

    @property
    def satisfied(self) -> bool:
        return self._passed >= self._n

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        first = rows.slice(0, self._n - self._passed)
        if first.num_rows:
            self._passed += first.num_rows
            self.out.emit(first)

    def snapshot(self) -> OperatorState:
        return OperatorState(values={"passed": self._passed})

    def restore(self, parts: Sequence[OperatorState]) -> None:
        self._passed = sum(part.values["passed"] for part in parts)
