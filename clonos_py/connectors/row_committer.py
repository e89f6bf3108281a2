"""Base of user-defined exactly-once sinks, which write rows and a mark in one transaction.

Rows are kept in the checkpoint (``kept_rows``). So a replacement has them after any failure, and the sink writes rows
only once they are certain to count. A commit may be repeated, also by another process; the mark shows that it has been
done.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import pyarrow as pa

from clonos_py.connectors.kept_rows import KeepingSink, TaskEpoch
from clonos_py.connectors.users_code import failures_of
from clonos_py.model.connectors import Delivery, SinkDefinition
from clonos_py.model.errors import SinkError, UnreadableCheckpointError
from clonos_py.model.operators import Sink
from clonos_py.model.snapshots import lineage_of


class CommitId(NamedTuple):
    """Identifies the rows of one commit; it is the same whenever the commit is repeated, by any process."""

    owner: str
    """The task that the rows are from, in this job and its lineage of checkpoints: ``LINEAGE/OPERATOR/INDEX``. All
    attempts of the task and runs that resume it have the same owner; after ``--fresh`` there is another one."""
    checkpoint: int
    """Commits of an owner come in the order of their checkpoints. A commit whose checkpoint is not higher than an
    earlier one's is a repetition."""


class RowCommitter:
    """Writes the rows of one task. It runs in the process of that task, and is called by one thread at a time."""

    def commit(self, commit: CommitId, rows: pa.Table) -> None:
        """Writes ``rows`` and stores ``commit.checkpoint`` as the last one of ``commit.owner``, atomically. Does
        nothing if that checkpoint, or a higher one, is already stored.

        It is called once the checkpoint is complete, and again if it is uncertain whether the commit succeeded: after a
        restart, and by an attempt of the task that had hung. Two processes may call it at the same time. After a change
        of parallelism, rows of tasks that no longer exist are committed under their old owner.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Releases the committer's resources. Not called when the process is killed."""


class TransactionalSink(SinkDefinition):
    """Base of user-defined sinks whose rows become visible, exactly once, when the checkpoint that covers them is
    complete. Implement ``open``. The rows of an epoch must fit into memory.

    With ``upserts = True`` it accepts tables: the last row of a key replaces earlier ones. With ``deletes = True`` it
    also accepts tables that can lose rows: rows then have the column ``_change``, which is ``insert``, ``update`` or
    ``delete``.

    The definition is pickled and sent to the tasks: keep addresses in it, not connections.
    """

    delivery = Delivery.TRANSACTIONAL

    def open(self, schema: pa.Schema) -> RowCommitter:
        """Returns the committer for rows of ``schema``. Called in the process of a task, before its first commit."""
        raise NotImplementedError

    def create(self, schema: pa.Schema) -> Sink:
        return _KeepingRows(self, schema)


class _PreparedCommit(msgspec.Struct, frozen=True, array_like=True):
    """What the manifest records of the rows that a task has prepared for a checkpoint."""

    lineage: str
    index: int
    checkpoint: int


class _KeepingRows(KeepingSink):
    """The sink of one task."""

    def __init__(self, definition: TransactionalSink, schema: pa.Schema) -> None:
        super().__init__()
        self._definition, self._schema = definition, schema
        self._closing = threading.Lock()
        """The task may close the sink while the committing thread uses it."""
        self._last: dict[str, int] = {}
        """Used by the committing thread, as is the next one."""
        self._committer: RowCommitter | None = None

    def close(self) -> None:
        with self._closing:
            if self._committer is not None:
                self._committer.close()
                self._committer = None

    # ---- called by the task's thread

    def prepare(self, checkpoint: int) -> bytes | None:
        if not self.keep(checkpoint):
            return None
        prepared = _PreparedCommit(lineage_of(self.ctx.numbering), self.ctx.task.index, checkpoint)
        return msgspec.msgpack.encode(prepared)

    # ---- called by the committing thread

    def commit_all(self, committables: Sequence[bytes]) -> None:
        super().commit_all(committables)
        self._loaded = {}

    def commit(self, committable: bytes) -> None:
        prepared = self._decoded(committable)
        owner = f"{prepared.lineage}/{self.ctx.operator}/{prepared.index}"
        if prepared.checkpoint > self._last.get(owner, -1):
            rows = self._rows(TaskEpoch(prepared.index, prepared.checkpoint))
            with self._closing, failures_of(f"operator {self.ctx.operator!r}", SinkError):
                if self._committer is None:
                    self._committer = self._definition.open(self._schema)
                self._committer.commit(CommitId(owner, prepared.checkpoint), rows)
            self._last[owner] = prepared.checkpoint
        self.committed(TaskEpoch(prepared.index, prepared.checkpoint))

    def _decoded(self, committable: bytes) -> _PreparedCommit:
        try:
            return msgspec.msgpack.decode(committable, type=_PreparedCommit)
        except msgspec.MsgspecError as problem:
            raise SinkError(
                f"operator {self.ctx.operator!r}: the checkpoint names no rows of this sink ({problem}): it was "
                "written with another one; resume with that, or start over with --fresh"
            ) from problem

    def _rows(self, epoch: TaskEpoch) -> pa.Table:
        chunks = self.kept(epoch)
        if not chunks:
            raise UnreadableCheckpointError(
                f"operator {self.ctx.operator!r}: rows of checkpoint {epoch.checkpoint} are not in the checkpoint that "
                "names them: it is damaged; restore it from a copy, or start over with --fresh"
            )
        return pa.Table.from_batches([chunk.rows for chunk in chunks], schema=self._schema)
