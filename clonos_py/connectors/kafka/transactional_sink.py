"""The transactional sink: rows in Kafka become visible when their checkpoint is complete.

The rows of an epoch are kept in the checkpoint that ends it. Once it is complete they are written in parts. Each short
transaction has the rows of a part and an entry for it in the journal. A part with an entry is not written again. No
transaction stays open for an epoch, so no timeout of the broker can lose output, and no consumer has to wait.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import msgspec
import pyarrow as pa

from clonos_py.columns import compact
from clonos_py.connectors.kafka.client import TransactionalWriter
from clonos_py.connectors.kafka.journal import PartKey, WrittenPart, messages_of
from clonos_py.connectors.kafka.journaled_topic import JournaledTopic
from clonos_py.connectors.kafka.outgoing import MessageMaker
from clonos_py.connectors.kept_rows import KeepingSink, TaskEpoch
from clonos_py.model.errors import SinkError, UnreadableCheckpointError
from clonos_py.model.operators import OperatorContext, Output
from clonos_py.model.snapshots import lineage_of

PART_ROWS = 10_000
PART_BYTES = 4 << 20
"""A part is cut at either limit. It is sent at once, and held in memory as messages."""


class PreparedRows(msgspec.Struct, frozen=True, array_like=True):
    """The rows that task ``index`` has prepared for a checkpoint: the checksum of each part."""

    lineage: str
    index: int
    checkpoint: int
    checksums: list[int]


class _Acquired(NamedTuple):
    """A transactional id that this process has acquired, and the content of the journal: for each part the checksum of
    its rows, and the offset of its entry."""

    writer: TransactionalWriter
    parts: dict[PartKey, tuple[int, int]]


class KafkaTransactionalWriter(KeepingSink):
    """The sink of one task."""

    def __init__(self, medium: JournaledTopic, maker: MessageMaker) -> None:
        super().__init__()
        self._medium, self._maker = medium, maker
        self._acquired: dict[int, _Acquired] = {}
        """Used by the committing thread."""

    def open(self, ctx: OperatorContext, out: Output) -> None:
        super().open(ctx, out)
        self._medium.open(ctx)

    def close(self) -> None:
        self._drop()

    # ---- called by the task's thread

    def prepare(self, checkpoint: int) -> bytes | None:
        parts = self.keep(checkpoint, _parts)
        if not parts:
            return None
        index, checksums = self.ctx.task.index, list(map(compact.checksum, parts))
        return msgspec.msgpack.encode(PreparedRows(lineage_of(self.ctx.numbering), index, checkpoint, checksums))

    # ---- called by the committing thread

    def commit(self, committable: bytes) -> None:
        self.commit_all([committable])

    def commit_all(self, committables: Sequence[bytes]) -> None:
        """Commits prepared rows. A restart from this checkpoint repeats the same commits; one from a later checkpoint
        repeats nothing older."""
        prepared = list(map(self._decoded, committables))
        for index, of_task in groupby(prepared, key=lambda p: p.index):
            self._commit(index, list(of_task))
        self._loaded = {}

    def _decoded(self, committable: bytes) -> PreparedRows:
        try:
            return msgspec.msgpack.decode(committable, type=PreparedRows)
        except msgspec.MsgspecError as problem:
            raise SinkError(
                f"operator {self.ctx.operator!r}: the checkpoint names no rows for Kafka ({problem}): it was written "
                "with another delivery; resume with that one, or start over with --fresh"
            ) from problem

    def _commit(self, index: int, prepared: Sequence[PreparedRows]) -> None:
        def commit() -> None:
            acquired = self._acquired.get(index) or self._acquire(index)
            end = self._medium.end(index)
            for each in prepared:
                self._write_missing(each, acquired, end)
            self._delete_old_entries(index, prepared[0], acquired)

        self._medium.retried(commit, self._drop)
        for each in prepared:
            self.committed(TaskEpoch(index, each.checkpoint))

    def _write_missing(self, prepared: PreparedRows, acquired: _Acquired, end: int) -> None:
        """Writes the missing parts. ``end``: an offset before the new entries. Raises KafkaFailure, SinkError."""
        for number, checksum in enumerate(prepared.checksums):
            key = PartKey(prepared.lineage, prepared.checkpoint, number)
            if key not in acquired.parts:
                entry = WrittenPart("", self.ctx.operator, key, checksum)
                rows = self._maker.messages(self._rows(prepared.index, key))
                self._medium.transact(
                    acquired.writer, [*rows, *messages_of(entry, self._medium.partition(prepared.index))]
                )
                acquired.parts[key] = (checksum, end)
            elif acquired.parts[key][0] != checksum:
                raise SinkError(
                    f"{self._what(key)} are already visible with other content: the job has been resumed from "
                    "a checkpoint before its last one; resume from that, or start over with --fresh and another topic"
                )

    def _acquire(self, index: int) -> _Acquired:
        """Acquires the id of a task, which fences off its earlier owner, and reads the journal."""
        writer = self._medium.writer(index)
        name = secrets.token_hex(8)
        fence = WrittenPart(name, self.ctx.operator, PartKey("", 0, 0), 0)
        with self._medium.entries(index) as journal:
            self._medium.transact(writer, messages_of(fence, self._medium.partition(index)))
            journal.read_until(name)
        parts = {found.entry.key: (found.entry.checksum, found.offset) for found in journal.parts}
        self._acquired[index] = acquired = _Acquired(writer, parts)
        return acquired

    def _rows(self, index: int, key: PartKey) -> pa.RecordBatch:
        chunks = self.kept(TaskEpoch(index, key.checkpoint))
        if key.number >= len(chunks):
            raise UnreadableCheckpointError(
                f"{self._what(key)} are not in the checkpoint that names them: it is damaged; restore it from a copy, "
                "or start over with --fresh"
            )
        return chunks[key.number].rows

    def _delete_old_entries(self, index: int, oldest: PreparedRows, acquired: _Acquired) -> None:
        """Deletes journal entries of parts that no restart commits again."""
        lineage, checkpoint = oldest.lineage, oldest.checkpoint
        old = [key for key in acquired.parts if key.lineage != lineage or key.checkpoint < checkpoint]
        for key in old:
            del acquired.parts[key]
        if old:
            self._medium.delete_before(index, min(offset for _, offset in acquired.parts.values()))

    def _drop(self) -> None:
        """Closes the writers; the next ones have to acquire their ids again."""
        self._medium.drop()
        self._acquired = {}

    def _what(self, key: PartKey) -> str:
        return f"Kafka topic {self._medium.topic!r}: rows of checkpoint {key.checkpoint}, part {key.number + 1},"


def _parts(batches: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows in order, cut into parts of a suitable size."""
    for rows in pa.Table.from_batches(batches).combine_chunks().to_batches():
        size = max(1, min(PART_ROWS, rows.num_rows * PART_BYTES // max(rows.nbytes, 1)))
        for start in range(0, rows.num_rows, size):
            yield rows.slice(start, size)
