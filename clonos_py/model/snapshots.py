"""Snapshots of whole tasks, as taken and as stored, and the manifest that makes them a checkpoint (D7, D15)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import pyarrow as pa

from clonos_py.model.ids import TaskId
from clonos_py.model.segments import LogSegment
from clonos_py.model.state import OperatorState


class StoredChunk(msgspec.Struct, frozen=True):
    """A chunk in storage: its path below the job's folder, and what it must contain."""

    location: str
    rows: int
    size_bytes: int
    checksum: int


class StoredFrames(msgspec.Struct, frozen=True):
    """Where the frames [start, stop) of a channel lie in storage, perhaps among others that were stored with them."""

    location: str
    start: int
    stop: int
    rows: int
    """In these frames."""


class FrameRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What storage keeps of a frame beside its body; the fields are those of ``Frame``."""

    seq: int
    kind: int
    epoch: int
    watermark: int
    idle: bool
    checkpoint: int
    stamp: bytes
    rows: int
    size_bytes: int
    """Of the body; 0: it has none."""


@dataclass(frozen=True)
class FrameRun:
    """Consecutive frames of a channel as storage keeps them. Each body is an Arrow message of one batch of ``schema``,
    so that a checkpoint does not depend on the driver that wrote it."""

    schema: pa.Schema
    records: Sequence[FrameRecord]
    bodies: Sequence[pa.Buffer | None]

    @property
    def start(self) -> int:
        return self.records[0].seq

    @property
    def stop(self) -> int:
        return self.records[-1].seq + 1

    @property
    def rows(self) -> int:
        return sum(record.rows for record in self.records)


@dataclass(frozen=True)
class TaskSnapshot:
    """What a task hands to storage at a barrier. ``progress`` is msgpack: sequence numbers, log offset, watermarks,
    timers; it serves the replacement of this very task and is void on another parallelism. ``operators`` are by stable
    name, the source's positions among them. ``committables`` are by the sink's name, oldest first: an aborted
    checkpoint's are committed with the next."""

    task: TaskId
    checkpoint: int
    operators: Mapping[str, OperatorState]
    progress: bytes
    committables: Mapping[str, Sequence[bytes]] = field(default_factory=dict)
    frames: Mapping[int, Sequence[StoredFrames | FrameRun]] = field(default_factory=dict)
    """By output channel: the frames before the snapshot that its receiver's snapshot does not cover (channel state, see
    E3), in their order. With the content of those that are not stored yet."""
    logs: Sequence[LogSegment] = ()
    """Of upstream tasks: what the state depends on of what they have decided since their own restart points (E8)."""
    forced: bool = False
    """By frames that were about to be taken (E10)."""


class OperatorHandle(msgspec.Struct, frozen=True):
    """Where one operator instance's snapshot lies. ``values`` are the msgpack of OperatorState.values."""

    tables: dict[str, list[StoredChunk]]
    values: bytes


class TaskHandle(msgspec.Struct, frozen=True):
    """Where a task's snapshot lies: what the task reports to the coordinator once all of it is durable."""

    task: TaskId
    checkpoint: int
    operators: dict[str, OperatorHandle]
    progress: bytes
    committables: dict[str, list[bytes]]
    written_bytes: int = 0
    """New bytes that this snapshot cost; chunks of earlier ones are referenced."""
    frames: dict[int, list[StoredFrames]] = {}
    """By output channel: see TaskSnapshot."""
    logs: StoredChunk | None = None
    """See TaskSnapshot: one row for each segment."""
    forced: bool = False
    """See TaskSnapshot."""

    @property
    def locations(self) -> Iterator[str]:
        """Of all that the snapshot consists of."""
        for operator in self.operators.values():
            for chunks in operator.tables.values():
                yield from (chunk.location for chunk in chunks)
        for frames in self.frames.values():
            yield from (stored.location for stored in frames)
        if self.logs is not None:
            yield self.logs.location


def numbering_of(lineage: str, renumberings: int) -> str:
    """Names how the frames of a run are numbered, see OperatorContext."""
    return f"{lineage}-{renumberings}"


def lineage_of(numbering: str) -> str:
    """The lineage of checkpoints in what ``numbering_of`` has made."""
    return numbering.rpartition("-")[0]


class Manifest(msgspec.Struct, frozen=True):
    """A completed checkpoint: the handles of all tasks. It is complete when it is written, and only then."""

    job: str
    checkpoint: int
    generation: int
    key_groups: int
    parallelism: dict[str, int]
    tasks: list[TaskHandle]
    """The newest snapshot of each task that counts."""
    operators: dict[str, str] = {}
    """Stable operator name to the vertex it ran in."""
    code_digest: str = ""
    """Of the user's modules; empty where none was taken."""
    lineage: str = ""
    """Of the lineage of checkpoints: drawn when it began, kept by all that resume from it."""
    protocol: str = ""
    """The checkpoint protocol that its tasks followed."""
    rollback: bool = False
    """Whether nothing was logged, so that tasks go back to snapshots that fit together."""
    earlier: list[TaskHandle] = []
    """Snapshots from before to which tasks may still have to go back, of each task oldest first."""
    renumberings: int = 0
    """How often a change of parallelism or of the operators has numbered frames from 0 again since the line began."""
    kinds: dict[str, str] = {}
    """The verb of each operator with state or results to commit, by name; sources among them."""

    @property
    def handles(self) -> Iterator[TaskHandle]:
        """All snapshots that it names."""
        yield from self.earlier
        yield from self.tasks

    def of_other_code(self, code_digest: str) -> bool:
        """Whether it is known that the code of this digest has not written it."""
        return bool(self.code_digest and code_digest) and self.code_digest != code_digest

    @property
    def coordinated(self) -> bool:
        """Whether all tasks took their snapshots for this checkpoint, and not each alone."""
        return all(handle.checkpoint == self.checkpoint for handle in self.handles)

    def parts(self, operator: str) -> list[OperatorHandle]:
        """The snapshots of all instances of an operator, by index."""
        owners = sorted((t for t in self.tasks if operator in t.operators), key=lambda t: t.task.index)
        return [t.operators[operator] for t in owners]
