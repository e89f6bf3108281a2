"""Sources and sinks in memory, for tests and small jobs.

``MemorySource`` distributes rows over partitions round-robin. ``MemorySink`` collects rows under a name, in the process
that runs the sink. As with files, rows become visible when the checkpoint that covers them is committed, so tests
observe exactly-once behaviour.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, overload

import numpy as np
import pyarrow as pa
from typing_extensions import TypeVar

from clonos_py.columns.frames import ArrowFrame, ColumnError, batch_of, batch_with
from clonos_py.connectors.partitions import PartitionRead, PartitionReader
from clonos_py.connectors.staging import StagedPiece, StagedSink
from clonos_py.model.connectors import Delivery, SinkDefinition, SourceDefinition
from clonos_py.model.errors import GraphError, SinkError, SourceError
from clonos_py.model.operators import Source
from clonos_py.model.record import Record, schema_of
from clonos_py.model.record_codec import decode, encode
from clonos_py.model.snapshots import lineage_of

R = TypeVar("R", bound=Record, default=Any)

Rows = Sequence[Any] | ArrowFrame


class MemorySource(SourceDefinition[R]):
    """Reads ``rows``: records of one class, or a table, batch or frame of pyarrow, pandas or Polars. ``schema`` is
    needed only for an empty list of records; a frame is converted to it if that loses nothing.

    Row i belongs to partition i % ``partitions``; a read has at most ``batch_rows`` rows. Raises GraphError.
    """

    @overload
    def __init__(
        self, rows: Sequence[R], partitions: int = 1, schema: type[R] | None = None, batch_rows: int = 1024
    ) -> None: ...
    @overload
    def __init__(
        self: MemorySource[Any],
        rows: Rows,
        partitions: int = 1,
        schema: type[Record] | pa.Schema | None = None,
        batch_rows: int = 1024,
    ) -> None: ...
    def __init__(
        self,
        rows: Rows,
        partitions: int = 1,
        schema: type[Record] | pa.Schema | None = None,
        batch_rows: int = 1024,
    ) -> None:
        if not isinstance(partitions, int):
            raise GraphError(f"MemorySource: partitions is {partitions!r}, a number; the class of rows is schema=")
        if partitions < 1 or batch_rows < 1:
            raise GraphError(
                f"MemorySource: partitions ({partitions}) and batch_rows ({batch_rows}) must be at least 1"
            )
        self._rows = _as_batch(rows, schema)
        self._partitions = partitions
        self._batch_rows = batch_rows
        self.schemas = (self._rows.schema,)
        self.records = (_class_of(rows, schema),)

    def create(self, columns: tuple[tuple[str, ...] | None, ...], read_rows: int | None = None) -> Source:
        (names,) = columns
        rows = self._rows if names is None else self._rows.select(list(names))
        batch_rows = min(self._batch_rows, read_rows or self._batch_rows)
        return PartitionReader(self._partitions, lambda number: MemoryPartition(self._dealt(rows, number), batch_rows))

    def _dealt(self, rows: pa.RecordBatch, number: int) -> pa.RecordBatch:
        if self._partitions == 1:
            return rows
        return rows.take(np.arange(number, rows.num_rows, self._partitions))


class MemoryPartition:
    """The rows of a partition. Positions count them."""

    name = ""

    def __init__(self, rows: pa.RecordBatch, batch_rows: int) -> None:
        self._rows = rows
        self._batch_rows = batch_rows

    def next(self, start: int, rows_max: int | None) -> PartitionRead | None:
        if start >= self._rows.num_rows:
            return None
        count = min(self._batch_rows, rows_max or self._batch_rows)
        return self.between(start, min(start + count, self._rows.num_rows))

    def between(self, start: int, stop: int) -> PartitionRead:
        if stop > self._rows.num_rows:
            raise SourceError(f"MemorySource: offset {stop} is beyond the {self._rows.num_rows} rows of the partition")
        return PartitionRead(stop, self._rows.slice(start, stop - start), 0, stop == self._rows.num_rows)


class MemorySink(SinkDefinition):
    """Collects rows under ``name``. ``table`` and ``rows`` return the rows committed so far in this process.

    A run that does not resume from a checkpoint begins without rows. A run on Ray is refused, since its tasks are in
    other processes.
    """

    delivery = Delivery.TRANSACTIONAL
    only_here = True

    def __init__(self, name: str | None = None) -> None:
        self.name = name or f"memory-{next(_numbers)}"

    def create(self, schema: pa.Schema) -> MemoryCollector:
        return MemoryCollector(self.name)

    def table(self) -> pa.Table | None:
        """All committed rows, by epoch and then by task; None if there are none."""
        batches = _collections.setdefault(self.name, Collection()).visible_batches()
        return pa.Table.from_batches(batches) if batches else None

    def rows(self, record: type[R]) -> list[R]:
        batches = _collections.setdefault(self.name, Collection()).visible_batches()
        return [row for batch in batches for rows in decode(batch, record) for row in rows]

    def clear(self) -> None:
        _collections.pop(self.name, None)


class Collection:
    """The rows of all sinks with one name in this process: staged pieces, and committed ones by their final names."""

    def __init__(self) -> None:
        self.staged: dict[str, list[pa.RecordBatch]] = {}
        self.visible: dict[str, list[pa.RecordBatch]] = {}
        self._lineages: dict[str, str] = {}
        """By operator: the lineage of the runs whose rows these are."""

    def belong_to(self, operator: str, lineage: str) -> None:
        """Drops the rows that the operator has written in runs from which this one does not resume."""
        if self._lineages.setdefault(operator, lineage) != lineage:
            self._lineages[operator] = lineage
            for final in [name for name in list(self.visible) if name.rsplit("-", 2)[0] == operator]:
                self.visible.pop(final, None)

    def visible_batches(self) -> list[pa.RecordBatch]:
        return [batch for final in sorted(self.visible, key=_epoch_and_task) for batch in self.visible[final]]


class MemoryCollector(StagedSink):
    """The sink of one task: staged rows become visible in the collection at commit."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._written: list[pa.RecordBatch] = []

    @property
    def _collection(self) -> Collection:
        return _collections.setdefault(self._name, Collection())

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        if rows.num_rows:
            self._written.append(rows)
            self.ctx.count("rows_out", rows.num_rows)

    def prepare(self, checkpoint: int) -> bytes | None:
        if lineage := lineage_of(self.ctx.numbering):  # a trial and the simulator have none
            self._collection.belong_to(self.ctx.operator, lineage)
        return super().prepare(checkpoint)

    def _close_staged(self) -> str | None:
        if not self._written:
            return None
        staged = self._new_staged_name()
        self._collection.staged[staged] = self._written
        self._written = []
        return staged

    def _publish(self, piece: StagedPiece) -> None:
        rows = self._collection.staged.get(piece.staged)
        if rows is not None:
            self._collection.visible[piece.final] = rows
            self._collection.staged.pop(piece.staged, None)
        elif piece.final not in self._collection.visible:
            raise SinkError(
                f"operator {self.ctx.operator!r}: the rows {piece.final} of the checkpoint were in another process "
                "or another MemorySink: begin with fresh=True (--fresh), or write to a FileSink"
            )

    def _discard_open(self) -> None:
        self._written = []

    def _discard_before(self, checkpoint: int) -> None:
        for staged in [name for name in list(self._collection.staged) if self._is_left_over(name, checkpoint)]:
            self._collection.staged.pop(staged, None)


_numbers = itertools.count()
_collections: dict[str, Collection] = {}


def _epoch_and_task(final: str) -> tuple[int, str]:
    owner, _, checkpoint = final.rpartition("-")
    return int(checkpoint), owner


def _as_batch(rows: Rows, schema: type[Record] | pa.Schema | None) -> pa.RecordBatch:
    if isinstance(rows, ArrowFrame):
        try:
            return batch_of(rows) if schema is None else batch_with(rows, schema_of(schema))
        except ColumnError as error:
            raise GraphError(f"MemorySource: {error}") from error
    if schema is None:
        if not rows or not isinstance(rows[0], Record):
            raise GraphError("MemorySource needs records, a table or a frame; for anything else give a schema")
        schema = type(rows[0])
    return encode(rows, schema_of(schema))


def _class_of(rows: Rows, schema: type[Record] | pa.Schema | None) -> type[Record] | None:
    if isinstance(schema, type):
        return schema
    return type(rows[0]) if isinstance(rows, Sequence) and rows and isinstance(rows[0], Record) else None
