"""Sinks that keep rows in their snapshots until these are committed (D16).

The rows of an epoch are part of the checkpoint that ends it. Once that is complete they are committed, by the task or
by a process that restarts from it. No rows have to be staged where the sink writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa

from clonos_py.model.operators import Sink
from clonos_py.model.state import Chunk, OperatorState


class TaskEpoch(NamedTuple):
    """Names rows among those of a snapshot: what task ``task_index`` has prepared for a checkpoint."""

    task_index: int
    checkpoint: int


class KeepingSink(Sink):
    """Base of such sinks. Rows are kept from the time they come until a later snapshot finds them committed."""

    remote = True

    def __init__(self) -> None:
        self._coming: list[pa.RecordBatch] = []
        self._kept: dict[TaskEpoch, Sequence[Chunk]] = {}
        self._loaded: Mapping[TaskEpoch, Sequence[Chunk]] = {}
        """Of the thread that commits, as is the next."""
        self._committed: dict[int, int] = {}
        """By task: the checkpoint up to which its rows are committed."""

    # ---- by the thread of the task

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        if rows.num_rows:
            self._coming.append(rows)
            self.ctx.count("rows_out", rows.num_rows)

    def keep(
        self, checkpoint: int, cut: Callable[[Sequence[pa.RecordBatch]], Iterable[pa.RecordBatch]] = iter
    ) -> list[pa.RecordBatch]:
        """Makes what has come part of the snapshot for ``checkpoint``, and gives the pieces into which ``cut`` has cut
        it. What is committed is kept no longer: a snapshot that was taken before has it."""
        for epoch in [epoch for epoch in self._kept if epoch.checkpoint <= self._committed.get(epoch.task_index, 0)]:
            del self._kept[epoch]
        if not self._coming:
            return []
        pieces, self._coming = list(cut(self._coming)), []
        self._kept[TaskEpoch(self.ctx.task.index, checkpoint)] = [Chunk(piece) for piece in pieces]
        return pieces

    def snapshot(self) -> OperatorState:
        return OperatorState({f"{epoch.task_index}.{epoch.checkpoint}": chunks for epoch, chunks in self._kept.items()})

    def restore(self, parts: Sequence[OperatorState]) -> None:
        """After a change of parallelism all tasks have the snapshots of all former ones. What is named in these is
        committed by the first task: others need no rows of former tasks."""
        self._coming = []
        own = self.ctx.task.index
        self._kept = {epoch: rows for epoch, rows in _by_epoch(parts).items() if own in (0, epoch.task_index)}

    # ---- by the thread that commits

    def loaded(self, parts: Sequence[OperatorState]) -> None:
        self._loaded = _by_epoch(parts)

    def committed(self, epoch: TaskEpoch) -> None:
        """The rows of this task up to this checkpoint are committed: epochs are, in their order."""
        self._committed[epoch.task_index] = max(epoch.checkpoint, self._committed.get(epoch.task_index, 0))

    def kept(self, epoch: TaskEpoch) -> Sequence[Chunk]:
        """The rows of an epoch; none if the snapshots at hand lack them."""
        return self._kept.get(epoch) or self._loaded.get(epoch) or ()


def _by_epoch(parts: Sequence[OperatorState]) -> dict[TaskEpoch, Sequence[Chunk]]:
    return {
        TaskEpoch(*map(int, name.split("."))): chunks
        for state in parts
        for name, chunks in state.tables.items()
        if chunks
    }
