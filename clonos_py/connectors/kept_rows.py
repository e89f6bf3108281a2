"""Sinks that keep rows in their snapshots until they are committed (D16).

The rows of an epoch are part of the checkpoint that ends it. Once it is complete, the task commits them, or a process
that restarts from it. So the target of the sink needs no staging area.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa

from clonos_py.model.operators import Sink
from clonos_py.model.state import Chunk, OperatorState


class TaskEpoch(NamedTuple):
    """Identifies rows in a snapshot: those that task ``task_index`` has prepared for a checkpoint."""

    task_index: int
    checkpoint: int


class KeepingSink(Sink):
    """Base of such sinks. Rows are kept from their arrival until a later snapshot finds them committed."""

    def __init__(self) -> None:
        self._arrived: list[pa.RecordBatch] = []
        self._kept: dict[TaskEpoch, Sequence[Chunk]] = {}
        self._loaded: Mapping[TaskEpoch, Sequence[Chunk]] = {}
        """Set by the committing thread, as is the next one."""
        self._committed: dict[int, int] = {}
        """The checkpoint up to which rows are committed, by task."""

    # ---- called by the task's thread

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        if rows.num_rows:
            self._arrived.append(rows)
            self.ctx.count("rows_out", rows.num_rows)

    def keep(
        self, checkpoint: int, cut: Callable[[Sequence[pa.RecordBatch]], Iterable[pa.RecordBatch]] = iter
    ) -> list[pa.RecordBatch]:
        """Adds the rows that have arrived to the snapshot for ``checkpoint``, and returns the pieces into which ``cut``
        has cut them. Drops committed rows; snapshots taken before still have them."""
        for epoch in [epoch for epoch in self._kept if epoch.checkpoint <= self._committed.get(epoch.task_index, 0)]:
            del self._kept[epoch]
        if not self._arrived:
            return []
        pieces, self._arrived = list(cut(self._arrived)), []
        self._kept[TaskEpoch(self.ctx.task.index, checkpoint)] = [Chunk(piece) for piece in pieces]
        return pieces

    def snapshot(self) -> OperatorState:
        return OperatorState({f"{epoch.task_index}.{epoch.checkpoint}": chunks for epoch, chunks in self._kept.items()})

    def restore(self, parts: Sequence[OperatorState]) -> None:
        """After a change of parallelism all tasks load the snapshots of all earlier tasks. The first task commits their
        rows; other tasks keep only their own."""
        self._arrived = []
        own = self.ctx.task.index
        self._kept = {epoch: rows for epoch, rows in _by_epoch(parts).items() if own in (0, epoch.task_index)}

    # ---- called by the committing thread

    def loaded(self, parts: Sequence[OperatorState]) -> None:
        self._loaded = _by_epoch(parts)

    def committed(self, epoch: TaskEpoch) -> None:
        """Marks the rows of a task up to this checkpoint as committed; epochs are committed in order."""
        self._committed[epoch.task_index] = max(epoch.checkpoint, self._committed.get(epoch.task_index, 0))

    def kept(self, epoch: TaskEpoch) -> Sequence[Chunk]:
        """The rows of an epoch; empty if no available snapshot has them."""
        return self._kept.get(epoch) or self._loaded.get(epoch) or ()


def _by_epoch(parts: Sequence[OperatorState]) -> dict[TaskEpoch, Sequence[Chunk]]:
    return {
        TaskEpoch(*map(int, name.split("."))): chunks
        for state in parts
        for name, chunks in state.tables.items()
        if chunks
    }
