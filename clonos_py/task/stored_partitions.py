"""What a snapshot has of each partition of a source, stored so that a checkpoint costs what has changed (D15).

Few changes are values of the snapshot. More become a chunk, which is stored once. A later chunk replaces the rows of
earlier ones; chunks are merged so that each is at least twice as large as the next. So there are few chunks, and most
rows are written a few times only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from clonos_py.columns.views import concat
from clonos_py.model.state import Chunk, OperatorState

_TABLE, _RECENT = "partitions", "recent"
_VALUES_MAX = 256


class StoredPartition(NamedTuple):
    """``position``: the next one. ``start``, ``checksum`` and ``identity`` are those of the last read, which ended at
    the position; ``start`` is -1 if there was none."""

    position: int
    finished: bool = False
    start: int = -1
    checksum: int = 0
    identity: int = 0


_TYPES: dict[str, pa.DataType] = {"finished": pa.bool_(), "checksum": pa.uint64()}
_SCHEMA = pa.schema(
    [pa.field(name, _TYPES.get(name, pa.int64()), nullable=False) for name in ("partition", *StoredPartition._fields)]
)


class StoredPartitions:
    """The partitions of one task."""

    def __init__(self) -> None:
        self._partitions: dict[int, StoredPartition] = {}
        self.finished: set[int] = set()
        """The partitions that have given their last row: those whose ``finished`` is set."""
        self._chunks: list[Chunk] = []
        self._recent: dict[int, None] = {}
        """The partitions that have changed since the last chunk."""
        self._read: dict[str, Mapping[int, StoredPartition]] = {}
        """By location: the content of the chunks of the last restore. A standby restores every checkpoint, and most
        chunks are those of the one before."""

    def get(self, partition: int) -> StoredPartition | None:
        return self._partitions.get(partition)

    @property
    def positions(self) -> dict[int, int]:
        """By partition: the next position."""
        return {number: partition.position for number, partition in self._partitions.items()}

    @property
    def all(self) -> dict[int, StoredPartition]:
        return dict(self._partitions)

    def put(self, partition: int, found: StoredPartition) -> None:
        self._partitions[partition] = found
        self._recent[partition] = None
        (self.finished.add if found.finished else self.finished.discard)(partition)

    def reopen(self) -> bool:
        """No partition has given its last row any more. Returns whether one had."""
        ended = sorted(self.finished)
        for partition in ended:
            self.put(partition, self._partitions[partition]._replace(finished=False))
        return bool(ended)

    def restore(self, parts: Sequence[OperatorState], parallelism: int, index: int) -> Mapping[int, StoredPartition]:
        """Takes the partitions of all instances at the time of a snapshot; it keeps those of this task and returns all
        of them."""
        found: dict[int, StoredPartition] = {}
        read, self._read = self._read, {}
        for part in parts:
            for chunk in part.tables.get(_TABLE, ()):
                name = chunk.location or ""
                content = read.get(name) if name else None
                self._read[name] = content = _content(chunk) if content is None else content
                found |= content
            found |= {int(number): StoredPartition(*row) for number, row in part.values[_RECENT].items()}
        own = {number: row for number, row in found.items() if number % parallelism == index}
        is_same_task = len(parts) == 1 and len(own) == len(found)
        self._chunks = list(parts[0].tables.get(_TABLE, ())) if is_same_task else []
        recent = [int(number) for number in parts[0].values[_RECENT]] if is_same_task else own
        self._partitions, self._recent = own, dict.fromkeys(recent)
        self.finished = {number for number, row in own.items() if row.finished}
        return found

    def snapshot(self, **values: Any) -> OperatorState:
        """The state of the source. ``values``: what else it has."""
        if len(self._recent) > _VALUES_MAX:
            self._add_chunk()
        recent = {number: self._partitions[number] for number in self._recent}
        return OperatorState({_TABLE: list(self._chunks)} if self._chunks else {}, {_RECENT: recent, **values})

    def _add_chunk(self) -> None:
        rows = _rows({number: self._partitions[number] for number in self._recent})
        while self._chunks and self._chunks[-1].rows.num_rows < 2 * rows.num_rows:
            older = self._chunks.pop().rows
            replaced = np.isin(older.column("partition"), rows.column("partition"))
            rows = concat([older.filter(pa.array(~replaced)), rows])
        self._chunks.append(Chunk(rows))
        self._recent = {}


def state_of(partitions: Mapping[int, StoredPartition], **values: Any) -> OperatorState:
    """The state of a source with these partitions. ``values``: what else it has."""
    return OperatorState(values={_RECENT: dict(partitions), **values})


def _rows(partitions: Mapping[int, StoredPartition]) -> pa.RecordBatch:
    rows = [(number, *partition) for number, partition in partitions.items()]
    values: Any = zip(*rows, strict=True)
    columns: list[Any] = [pa.array(column, field.type) for column, field in zip(values, _SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)


def _content(chunk: Chunk) -> Mapping[int, StoredPartition]:
    columns: list[list[Any]] = [column.to_pylist() for column in chunk.rows.columns]
    numbers, *columns = columns
    return dict(zip(numbers, map(StoredPartition, *columns), strict=True))
