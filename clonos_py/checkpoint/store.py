"""What the engine asks of checkpoint storage. ``CheckpointStore`` keeps files, ``MemoryStore`` is its twin."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from clonos_py.model.ids import Attempt, TaskId
from clonos_py.model.snapshots import FrameRun, Manifest, OperatorHandle, StoredChunk, TaskHandle, TaskSnapshot
from clonos_py.model.state import Chunk, OperatorState


class SnapshotStore(Protocol):
    """The checkpoints of one job.

    Promises: what ``write`` and ``write_manifest`` returned for survives a crash of every process and machine (as far
    as the file system keeps its word); nothing is ever overwritten; a checkpoint is complete exactly when its manifest
    is there. Every failure is a CheckpointError that names the path and what to do.
    """

    def write(self, snapshot: TaskSnapshot, attempt: Attempt) -> TaskHandle:
        """Makes a task's snapshot durable. Writes only chunks without a location, and notes it in them: all or none."""
        ...

    def read(self, handle: OperatorHandle, known: Mapping[str, Chunk] | None = None) -> OperatorState:
        """The state behind a handle, verified. Chunks carry their locations; those in ``known`` (by location) are
        taken from there, not read: a standby loads each new checkpoint at the cost of what changed."""
        ...

    def read_chunks(self, stored: Iterable[StoredChunk]) -> dict[str, Chunk]:
        """By location, verified."""
        ...

    def read_frames(self, locations: Iterable[str]) -> dict[str, FrameRun]:
        """By location, verified: all frames that were stored there together."""
        ...

    def keep_answer(self, epoch: int, task: TaskId, process: int, content: bytes) -> str:
        """Makes an answer that is too large for a log durable, and names it. It is kept until the oldest kept
        checkpoint has a later snapshot of ``task`` than ``epoch``. ``process`` tells writers apart."""
        ...

    def kept_answer(self, name: str) -> bytes:
        """What was kept under a name, verified. A name that ``keep_answer`` does not give is an error."""
        ...

    def open_generation(self, after: int | None = None) -> int:
        """Starts a generation: 1, 2, ... never twice, durable. The newest manifest at this moment is adopted; later
        ones of earlier generations are void (D11). Raises CheckpointError if ``after`` is given and is not the newest:
        the caller has been replaced."""
        ...

    def write_manifest(self, manifest: Manifest) -> None:
        """Completes a checkpoint. Raises CheckpointError if a later generation has been opened, even meanwhile, and if
        a file with chunks that it refers to is missing or shorter than it was. Changed bytes are not looked for here:
        they are found when the chunks are read. What disappears later is found by the next checkpoint that needs it."""
        ...

    def latest(self) -> Manifest | None:
        """The newest complete checkpoint. A damaged newest manifest raises: falling back silently to an older
        checkpoint would break what was promised to sinks."""
        ...

    def manifests(self) -> list[Manifest]:
        """All complete checkpoints whose manifests are there, oldest first. Those before the kept ones are there as
        long as these are composed of them; their chunks may be gone."""
        ...

    def retire(self, keep: int = 2) -> None:
        """Deletes all but the ``keep`` newest checkpoints, and the chunks that then nothing refers to. Touches neither
        savepoints nor anything written by a checkpoint later than the oldest kept one. What cannot be deleted keeps
        nothing else from being deleted; it is raised at the end, and tried again by the next call."""
        ...

    def write_savepoint(self, name: str, manifest: Manifest) -> None:
        """Keeps a checkpoint for good, under a name."""
        ...

    def savepoints(self) -> dict[str, Manifest]: ...

    def archive(self) -> str | None:
        """Moves all checkpoints and savepoints aside (``--fresh``) and says where to; None if there were none. To be
        called before ``open_generation``: the count goes on, so that tasks of the former line stay fenced."""
        ...
