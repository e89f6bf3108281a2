"""A sink of one's own that is exactly-once: write rows in one transaction with a mark. The rest is done here.

The rows of an epoch are kept in the checkpoint that ends it, and committed when it is complete: a replacement has them,
whatever died, and a sink has to take rows only once it is certain that they count. A commit may be repeated, also by
another process: the mark says that it has been done.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
import pyarrow as pa

from clonos_py.connectors.users_code import failures_of
from clonos_py.model.connectors import Delivery, SinkDefinition
from clonos_py.model.errors import SinkError
from clonos_py.model.operators import Sink
from clonos_py.model.snapshots import lineage_of
from clonos_py.model.state import Chunk, OperatorState


class CommitId(NamedTuple):
    """Names the rows of one commit: the same whenever, and by whatever process, it is repeated."""

    owner: str
    """The task whose rows they are, of this job and its lineage of checkpoints: ``LINEAGE/OPERATOR/INDEX``. The same
    for all attempts of the task and for runs that resume it; another one after ``--fresh``."""
    checkpoint: int
    """Commits of an owner come in the order of their checkpoints. One that is not higher than an earlier one is
    repeated."""


class RowCommitter:
    """Writes the rows of one task. It lives in the process of that task, and is called by one thread at a time."""

    def commit(self, commit: CommitId, rows: pa.Table) -> None:
        """Writes ``rows`` and notes ``commit.checkpoint`` as the last one of ``commit.owner``, both or neither. Does
        nothing if that checkpoint, or a higher one, is noted already.

        It is called once the checkpoint is complete, and again whenever it is not certain that it was done: after a
        restart, and by an attempt of the task that had hung. Two processes may do so at the same moment. After a change
        of parallelism, rows of tasks that are no more are committed under their old owner.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Releases what the committer holds. Not called when the process is killed."""


class TransactionalSink(SinkDefinition):
    """Base of sinks of one's own whose rows are visible when the checkpoint that covers them is complete, exactly once.
    Write ``open``. Rows of an epoch have to fit into memory.

    With ``upserts = True`` it takes a table: of the rows of a key the last one holds. With ``deletes = True`` tables
    whose rows may go away, too: then there is the column ``_change``, which is ``insert``, ``update`` or ``delete``.

    The definition travels to the tasks as a pickle: keep addresses in it, not connections.
    """

    delivery = Delivery.TRANSACTIONAL

    def open(self, schema: pa.Schema) -> RowCommitter:
        """What writes rows of ``schema``. Called in the process of a task, before its first commit."""
        raise NotImplementedError

    def create(self, schema: pa.Schema) -> Sink:
        return _KeepingRows(self, schema)


class _PreparedCommit(msgspec.Struct, frozen=True, array_like=True):
    """What the manifest says of the rows that a task has prepared for a checkpoint."""

    lineage: str
    index: int
    checkpoint: int


class _Kept(NamedTuple):
    """Names rows of an epoch among those of a snapshot."""

    task_index: int
    checkpoint: int


class _KeepingRows(Sink):
    """The sink of one task. Rows are kept from the time they come until a later snapshot finds them committed."""

    remote = True

    def __init__(self, definition: TransactionalSink, schema: pa.Schema) -> None:
        self._definition, self._schema = definition, schema
        self._coming: list[pa.RecordBatch] = []
        self._kept: dict[_Kept, Sequence[Chunk]] = {}
        self._closing = threading.Lock()
        """The task closes a sink while the thread that commits may be at work."""
        self._loaded: Mapping[_Kept, Sequence[Chunk]] = {}
        """Of the thread that commits, as are the following."""
        self._committed: set[_Kept] = set()
        self._last: dict[str, int] = {}
        self._committer: RowCommitter | None = None

    def close(self) -> None:
        with self._closing:
            if self._committer is not None:
                self._committer.close()
                self._committer = None

    # ---- by the thread of the task

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        if rows.num_rows:
            self._coming.append(rows)
            self.ctx.count("rows_out", rows.num_rows)

    def prepare(self, checkpoint: int) -> bytes | None:
        for kept in [kept for kept in self._kept if kept in self._committed]:  # a snapshot taken before has it
            del self._kept[kept]
            self._committed.discard(kept)
        if not self._coming:
            return None
        index = self.ctx.task.index
        self._kept[_Kept(index, checkpoint)] = [Chunk(rows) for rows in self._coming]
        self._coming = []
        return msgspec.msgpack.encode(_PreparedCommit(lineage_of(self.ctx.numbering), index, checkpoint))

    def snapshot(self) -> OperatorState:
        return OperatorState({f"{kept.task_index}.{kept.checkpoint}": chunks for kept, chunks in self._kept.items()})

    def restore(self, parts: Sequence[OperatorState]) -> None:
        self._coming = []
        self._kept = dict(_kept(parts))

    # ---- by the thread that commits

    def loaded(self, parts: Sequence[OperatorState]) -> None:
        self._loaded = dict(_kept(parts))

    def commit_all(self, committables: Sequence[bytes]) -> None:
        super().commit_all(committables)
        self._loaded = {}

    def commit(self, committable: bytes) -> None:
        prepared = self._decoded(committable)
        owner = f"{prepared.lineage}/{self.ctx.operator}/{prepared.index}"
        if prepared.checkpoint > self._last.get(owner, -1):
            rows = self._rows(_Kept(prepared.index, prepared.checkpoint))
            with self._closing, failures_of(f"operator {self.ctx.operator!r}", SinkError):
                if self._committer is None:
                    self._committer = self._definition.open(self._schema)
                self._committer.commit(CommitId(owner, prepared.checkpoint), rows)
            self._last[owner] = prepared.checkpoint
        self._committed.add(_Kept(prepared.index, prepared.checkpoint))

    def _decoded(self, committable: bytes) -> _PreparedCommit:
        try:
            return msgspec.msgpack.decode(committable, type=_PreparedCommit)
        except msgspec.MsgspecError as problem:
            raise SinkError(
                f"operator {self.ctx.operator!r}: the checkpoint names no rows of this sink ({problem}): it was "
                "written with another one; resume with that, or start over with --fresh"
            ) from problem

    def _rows(self, kept: _Kept) -> pa.Table:
        chunks = self._kept.get(kept) or self._loaded.get(kept)
        if chunks is None:
            raise SinkError(
                f"operator {self.ctx.operator!r}: rows of checkpoint {kept.checkpoint} are not in the checkpoint that "
                "names them: it is damaged; restore it from a copy, or start over with --fresh"
            )
        return pa.Table.from_batches([chunk.rows for chunk in chunks], schema=self._schema)


def _kept(parts: Sequence[OperatorState]) -> Iterator[tuple[_Kept, Sequence[Chunk]]]:
    for state in parts:
        for name, chunks in state.tables.items():
            if chunks:
                yield _Kept(*map(int, name.split("."))), chunks
