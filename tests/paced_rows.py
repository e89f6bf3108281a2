"""A source of rows that come a few at a time, so that a task can be killed while a job is under way."""

from __future__ import annotations

import time
from typing import Any

import pyarrow as pa

from clonos_py import Record
from clonos_py.connectors import MemorySource
from clonos_py.connectors.memory import MemoryPartition
from clonos_py.connectors.partitions import PartitionRead, PartitionReader
from clonos_py.model.operators import Source


class PacedRows(MemorySource[Any]):
    """``rows`` come in ``reads`` reads, or in one for each row, within ``seconds`` at least."""

    def __init__(self, rows: pa.Table, schema: type[Record], seconds: float = 4.0, reads: int = 200) -> None:
        super().__init__(rows, schema=schema, batch_rows=-(-rows.num_rows // reads))
        self._pause_s = seconds / min(reads, rows.num_rows)

    def create(self, columns: tuple[tuple[str, ...] | None, ...], read_rows: int | None = None) -> Source:
        (names,) = columns
        rows = self._rows if names is None else self._rows.select(list(names))
        return PartitionReader(1, lambda number: PacedPartition(rows, self._batch_rows, self._pause_s))


class PacedPartition(MemoryPartition):
    """Pauses before each read."""

    def __init__(self, rows: pa.RecordBatch, batch_rows: int, pause_s: float) -> None:
        super().__init__(rows, batch_rows)
        self._pause_s = pause_s

    def next(self, start: int, rows_max: int | None) -> PartitionRead | None:
        time.sleep(self._pause_s)
        return super().next(start, rows_max)
