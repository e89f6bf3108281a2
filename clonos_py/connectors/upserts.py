"""Sinks for updating results: the last row of a key replaces earlier ones. If rows can leave the table, the column
``_change`` says so; it is not written.

Each task keeps the last row of each of its keys as state. At a checkpoint after a change it stages its whole table,
which replaces the previous one. So the result must fit into memory, and the rows of a key must come from one task, as
they do after a keyed aggregate.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from clonos_py.columns.keys import key_groups
from clonos_py.columns.views import Bools
from clonos_py.connectors.file_writer import FileWriter
from clonos_py.connectors.local_paths import LocalPath, local_path
from clonos_py.connectors.memory import MemoryCollector, MemorySink
from clonos_py.connectors.names import names_of
from clonos_py.connectors.row_files import check_columns, check_format
from clonos_py.connectors.staging import StagedPiece, StagedSink
from clonos_py.model.connectors import Delivery, SinkDefinition
from clonos_py.model.errors import GraphError
from clonos_py.model.operators import Sink
from clonos_py.model.state import GROUP_COLUMN, Chunk, OperatorState
from clonos_py.model.tables import CHANGE_COLUMN, DELETE, without

COMPACTED_ROWS = 65_536


class UpsertFileSink(SinkDefinition):
    """Keeps ``OPERATOR-INDEX.latest.FORMAT`` in ``folder`` up to date, exactly once: the last row of every ``key``.

    Unlike ``FileSink`` it replaces the files of an earlier run. Raises GraphError for an unknown key or format.
    """

    upserts = True
    deletes = True
    delivery = Delivery.TRANSACTIONAL

    def __init__(self, folder: LocalPath, key: str | Sequence[str], format: str = "jsonl") -> None:
        check_format("UpsertFileSink", format)
        self._folder = local_path("UpsertFileSink", folder)
        self._key = names_of(key)
        self._format = format

    def create(self, schema: pa.Schema) -> Sink:
        shown = without(schema, CHANGE_COLUMN)
        check_columns("UpsertFileSink", self._format, shown)
        _check_key("UpsertFileSink", self._key, shown)
        return UpsertFileWriter(self._folder, self._format, LatestRows(self._key, shown), shown)

    def on_trial(self, folder: str) -> UpsertFileSink:
        return UpsertFileSink(folder, self._key, self._format)


class UpsertMemorySink(MemorySink):
    """An upserting sink in memory; ``table`` and ``rows`` have the last row of every ``key`` at the last checkpoint."""

    upserts = True
    deletes = True

    def __init__(self, key: str | Sequence[str], name: str | None = None) -> None:
        super().__init__(name)
        self._key = names_of(key)

    def create(self, schema: pa.Schema) -> MemoryCollector:
        shown = without(schema, CHANGE_COLUMN)
        _check_key("UpsertMemorySink", self._key, shown)
        return UpsertCollector(self.name, LatestRows(self._key, shown))


class LatestRows:
    """The last row of each key, without deleted rows, in order of arrival. ``schema`` excludes the change column, which
    added rows may have."""

    def __init__(self, key: tuple[str, ...], schema: pa.Schema) -> None:
        self._key = key
        self._schema = schema
        self.replace([])

    def replace(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Replaces all content by the rows of ``batches``."""
        self._rows = pa.RecordBatch.from_pylist([], schema=self._schema)
        self._newer = list(batches)
        self._newer_rows = sum(rows.num_rows for rows in batches)
        self._chunk: Chunk | None = None

    def add(self, rows: pa.RecordBatch) -> None:
        self._newer.append(rows)
        self._newer_rows += rows.num_rows
        if self._newer_rows > max(COMPACTED_ROWS, self._rows.num_rows):
            self._compact()

    def rows(self) -> pa.RecordBatch:
        if self._newer:
            self._compact()
        return self._rows

    def snapshot(self, groups: int) -> OperatorState:
        """One chunk, which stays the same object until a row changes."""
        rows = self.rows()
        if self._chunk is None:
            group = pa.array(key_groups(rows, self._key, groups), pa.int32())
            self._chunk = Chunk(rows.append_column(GROUP_COLUMN, group))
        return OperatorState({"latest": [self._chunk]})

    def restore(self, parts: Sequence[OperatorState], groups: range) -> None:
        chunks = [chunk.rows for part in parts for chunk in part.tables["latest"]]
        self.replace([_of_groups(rows, groups).select(self._schema.names) for rows in chunks])

    def _compact(self) -> None:
        import polars as pl

        batches = [self._rows, *self._newer]
        table = pa.Table.from_batches([rows.select(self._schema.names) for rows in batches], schema=self._schema)
        keys = pl.DataFrame(pl.from_arrow(table.select(self._key))).with_row_index(_POSITION)
        last = keys.unique(self._key, keep="last", maintain_order=True)[_POSITION].sort().to_numpy()
        not_deleted = np.concatenate([_not_deleted(rows) for rows in batches])
        kept = table.take(last[not_deleted[last]])
        self._rows = pa.RecordBatch.from_arrays([c.combine_chunks() for c in kept.columns], schema=self._schema)
        self._newer, self._newer_rows, self._chunk = [], 0, None


class _Upserts(StagedSink):
    """What upserting sinks of all media have in common: the last rows as state, and the tables of former tasks."""

    _latest: LatestRows
    _own: set[str]
    """Pieces that this sink has staged and not yet made visible."""
    _rescaled = False

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        if rows.num_rows:
            self._latest.add(rows)
            self.ctx.count("rows_out", rows.num_rows)

    def snapshot(self) -> OperatorState:
        values = {**super().snapshot().values, _PARALLELISM: self.ctx.parallelism}
        return OperatorState(self._latest.snapshot(self.ctx.key_groups).tables, values)

    def loaded(self, parts: Sequence[OperatorState]) -> None:
        """The visible tables are of former tasks if the snapshots were taken at another parallelism."""
        self._rescaled = any(
            part.values.get(_PARALLELISM, self.ctx.parallelism) != self.ctx.parallelism for part in parts
        )

    def restore(self, parts: Sequence[OperatorState]) -> None:
        super().restore(parts)
        self._latest.restore(parts, self.ctx.groups)

    def _publish(self, piece: StagedPiece) -> None:
        """Also removes the tables of tasks that no longer exist, once their keys have moved."""
        moved = not self._rescaled or piece.staged in self._own
        super()._publish(piece)
        self._own.discard(piece.staged)
        if moved:
            self._remove_former_tables()

    def _remove_former_tables(self) -> None:
        raise NotImplementedError


class UpsertFileWriter(_Upserts, FileWriter):
    """The sink of one task: stages its whole table after a change."""

    def __init__(self, folder: str, file_format: str, latest: LatestRows, schema: pa.Schema) -> None:
        super().__init__(folder, file_format, schema)
        self._latest = latest
        self._changed = False

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        super().on_rows(rows, side)
        self._changed = self._changed or rows.num_rows > 0

    def restore(self, parts: Sequence[OperatorState]) -> None:
        super().restore(parts)
        self._changed = True

    def _close_staged(self) -> str | None:
        if self._changed:
            self._write(self._latest.rows())
            self._changed = False
        return super()._close_staged()

    def _final_name(self, checkpoint: int) -> str:
        return f"{self._owner}.latest.{self._format}"

    def _check_new(self, final: str) -> None:
        """The file may exist: it is replaced."""

    def _remove_former_tables(self) -> None:
        for path in list(self._visible()) if self.ctx.task.index == 0 else ():
            name = os.path.basename(path)
            if self._is_of_former_task(name):
                self._remove(name)

    def _is_of_former_task(self, name: str) -> bool:
        owner, _, kind = name.rpartition(".latest.")
        operator, _, index = owner.rpartition("-")
        is_table = operator == self._operator and kind == self._format and index.isascii() and index.isdigit()
        return is_table and int(index) >= self.ctx.parallelism


class UpsertCollector(_Upserts, MemoryCollector):
    """The in-memory counterpart of ``UpsertFileWriter``."""

    def __init__(self, name: str, latest: LatestRows) -> None:
        super().__init__(name)
        self._latest, self._own = latest, set()

    def _close_staged(self) -> str | None:
        self._written = [self._latest.rows()]
        staged = super()._close_staged()
        self._own |= {staged} if staged is not None else set()
        return staged

    def _final_name(self, checkpoint: int) -> str:
        return super()._final_name(0)

    def _remove_former_tables(self) -> None:
        for removed in [final for final in list(self._collection.visible) if self._is_of_former_task(final)]:
            self._collection.visible.pop(removed, None)

    def _is_of_former_task(self, final: str) -> bool:
        operator, index, _ = final.rsplit("-", 2)
        return operator == self.ctx.operator and int(index) >= self.ctx.parallelism


_POSITION = "__position"
_PARALLELISM = "parallelism"
"""The parallelism of the tasks that took a snapshot."""


def _not_deleted(rows: pa.RecordBatch) -> Bools:
    """The rows that are not deletions."""
    if rows.schema.get_field_index(CHANGE_COLUMN) < 0:
        return np.ones(rows.num_rows, bool)
    kinds: Any = rows.column(CHANGE_COLUMN)
    kept: Bools = pc.not_equal(kinds, pa.scalar(DELETE)).to_numpy(zero_copy_only=False)
    return kept


def _check_key(owner: str, key: tuple[str, ...], schema: pa.Schema) -> None:
    unknown = [name for name in key if name not in schema.names]
    if unknown or not key:
        raise GraphError(f"{owner}: no key {', '.join(unknown)!r} among the columns {', '.join(schema.names)}")


def _of_groups(rows: pa.RecordBatch, groups: range) -> pa.RecordBatch:
    group = rows.column(GROUP_COLUMN).to_numpy()
    return rows.filter((group >= groups.start) & (group < groups.stop))
