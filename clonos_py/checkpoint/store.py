"""The interface of checkpoint storage. ``CheckpointStore`` writes files, ``MemoryStore`` works in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from clonos_py.model.ids import Attempt, TaskId
from clonos_py.model.segments import LogSegment
from clonos_py.model.snapshots import (
    FrameRun,
    Manifest,
    OperatorHandle,
    RecordTail,
    StoredChunk,
    TaskHandle,
    TaskSnapshot,
)
from clonos_py.model.state import Chunk, OperatorState


class SnapshotStore(Protocol):
    """The checkpoints of one job.

    Guarantees: what ``write`` and ``write_manifest`` have written survives a crash of every process and machine, if the
    file system is durable. No file is ever overwritten. A checkpoint is complete exactly if its manifest exists. Every
    failure is a CheckpointError that names the path and the remedy. After a StorageUnavailableError the same call may
    be repeated at once: storage has been asked several times before, for some seconds.
    """

    @property
    def requests(self) -> Mapping[str, int]:
        """By operation: the requests to an object store so far; empty where storage is none."""
        ...

    def write(self, snapshot: TaskSnapshot, attempt: Attempt) -> TaskHandle:
        """Makes a task's snapshot durable. Writes only chunks without a location, and sets it: all or none."""
        ...

    def read(self, handle: OperatorHandle, known: Mapping[str, Chunk] | None = None) -> OperatorState:
        """The state behind a handle, verified. Chunks carry their locations. Chunks in ``known`` (by location) are not
        read again, so a standby loads each new checkpoint at the cost of what has changed."""
        ...

    def read_chunks(self, stored: Iterable[StoredChunk]) -> dict[str, Chunk]:
        """By location: the chunks, verified."""
        ...

    def read_record(self, record: Iterable[StoredChunk]) -> list[LogSegment]:
        """The segments in these pieces of a task's log, in their order, verified. Raises CheckpointError."""
        ...

    def write_tail(self, tail: RecordTail) -> None:
        """Makes durable what a process held of logs when its job failed. Raises CheckpointError."""
        ...

    def tails(self) -> list[RecordTail]:
        """What processes held when the job failed behind its newest checkpoint. Raises CheckpointError."""
        ...

    def read_frames(self, locations: Iterable[str]) -> dict[str, FrameRun]:
        """By location: all frames that were stored together there, verified."""
        ...

    def keep_answer(self, epoch: int, task: TaskId, process: int, content: bytes) -> str:
        """Makes an answer that is too large for a log durable, and returns its name. It is kept until the oldest kept
        checkpoint has a later snapshot of ``task`` than ``epoch``. ``process`` separates writers."""
        ...

    def kept_answer(self, name: str) -> bytes:
        """The answer stored under a name, verified. Raises CheckpointError for names not made by ``keep_answer``."""
        ...

    def open_generation(self, after: int | None = None) -> int:
        """Starts a generation and returns its number: 1, 2, ..., durable, and never the same twice. The newest manifest
        at this moment is adopted; later ones of earlier generations are void (D11). Raises CheckpointError if ``after``
        is given and is not the newest: the caller has been replaced."""
        ...

    def write_manifest(self, manifest: Manifest) -> None:
        """Completes a checkpoint. Raises CheckpointError if a later generation has been opened, even meanwhile. Raises
        it as well if a chunk file that the manifest refers to is missing or shorter than it was. Changed bytes are not
        detected here but when the chunks are read. A file that disappears later is detected by the next checkpoint that
        needs it."""
        ...

    def latest(self) -> Manifest | None:
        """The newest complete checkpoint. Raises CheckpointError if its manifest is damaged: a silent fallback to an
        older checkpoint would break guarantees given to sinks."""
        ...

    def manifests(self) -> list[Manifest]:
        """All complete checkpoints whose manifests exist, oldest first. Those before the kept ones exist as long as
        kept ones are composed of them; their chunks may have been deleted. In a job that records, the chunks of all but
        the kept ones and the bases have been deleted."""
        ...

    def bases(self) -> list[Manifest]:
        """The complete checkpoints whose state is kept for the record, oldest first: a replay can start from them. The
        newest checkpoints are not among them, unless they are bases, too."""
        ...

    def retire(self, keep: int = 2) -> None:
        """Deletes all but the ``keep`` newest checkpoints, and the chunks that no kept one refers to. Does not touch
        savepoints, or files written by a checkpoint later than the oldest kept one. A file that cannot be deleted does
        not prevent other deletions; the error is raised at the end, and the next call tries again.

        If the newest checkpoint is recorded (``Manifest.recorded``), manifests, records and answers are kept from the
        oldest base on, and the chunks of all bases; see ``record_retention``."""
        ...

    def record_bytes(self) -> int:
        """What the record takes from its oldest base on: manifests, logs, answers, and the state of bases."""
        ...

    def write_savepoint(self, name: str, manifest: Manifest) -> None:
        """Keeps a checkpoint permanently under a name. Raises CheckpointError if the name is taken, or if snapshots
        need logs."""
        ...

    def savepoints(self) -> dict[str, Manifest]: ...

    def archive(self) -> str | None:
        """Moves all checkpoints and savepoints aside (``--fresh``). Returns where to; None if there were none. Must be
        called before ``open_generation``. Generation numbers continue, so that tasks of the former line stay fenced."""
        ...


def requests_since(before: Mapping[str, int], now: Mapping[str, int]) -> dict[str, int]:
    """By operation: the requests between two readings of the same counts."""
    return {
        operation: amount - before.get(operation, 0)
        for operation, amount in now.items()
        if amount != before.get(operation, 0)
    }
