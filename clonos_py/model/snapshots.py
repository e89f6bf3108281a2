"""Snapshots of whole tasks, as taken and as stored, and the manifest that makes them a checkpoint (D7, D15)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
import pyarrow as pa

from clonos_py.model.ids import Attempt, TaskId
from clonos_py.model.segments import LogSegment
from clonos_py.model.state import GROUP_COLUMN, Chunk, OperatorState
from clonos_py.model.state_definitions import StateDefinition


class StoredChunk(msgspec.Struct, frozen=True, omit_defaults=True):
    """A chunk in storage: its path relative to the job's folder, and what it must contain."""

    location: str
    """Empty for a chunk that a task need not read, see ``within``."""
    rows: int
    size_bytes: int
    checksum: int
    groups: tuple[int, int] | None = None
    """See ``Chunk``. None as well in checkpoints of earlier versions."""

    def within(self, groups: range) -> StoredChunk:
        """The chunk for a task that owns these key groups. One without a row in them need not be read."""
        if self.groups is None or (self.groups[0] < groups.stop and self.groups[1] >= groups.start):
            return self
        return StoredChunk("", self.rows, 0, 0, self.groups)

    @property
    def of_others(self) -> bool:
        """Whether the task need not read it."""
        return not self.location and self.groups is not None

    def unread(self) -> Chunk:
        """What the task gets instead: as many rows, with a key group of other tasks and no other column."""
        assert self.groups is not None
        groups = np.full(self.rows, self.groups[0], np.int32)
        return Chunk(pa.record_batch({GROUP_COLUMN: pa.array(groups)}), of_others=True)


class StoredFrames(msgspec.Struct, frozen=True):
    """The location of the frames [start, stop) of a channel in storage; others may be stored together with them."""

    location: str
    start: int
    stop: int
    rows: int
    """The number of rows in these frames."""


class FrameRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The stored fields of a frame, apart from its body; they are those of ``Frame``."""

    seq: int
    kind: int
    epoch: int
    watermark: int
    idle: bool
    checkpoint: int
    stamp: bytes
    rows: int
    size_bytes: int
    """The size of the body; 0: it has none."""


@dataclass(frozen=True)
class FrameRun:
    """Consecutive frames of a channel in their stored form. Each body is an Arrow message of one batch of ``schema``,
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
    """The snapshot that a task passes to storage at a barrier. ``progress``: sequence numbers, log offset, watermarks
    and timers as msgpack; only a replacement of the same task at the same parallelism can use it. ``operators``: by
    stable name, the source's positions included. ``committables``: by the sink's name, oldest first; those of an
    aborted checkpoint are committed with the next."""

    task: TaskId
    checkpoint: int
    operators: Mapping[str, OperatorState]
    progress: bytes
    committables: Mapping[str, Sequence[bytes]] = field(default_factory=dict)
    frames: Mapping[int, Sequence[StoredFrames | FrameRun]] = field(default_factory=dict)
    """By output channel, in order: the frames before the snapshot that its receiver's snapshot does not cover (channel
    state, see E3). Those that are not stored yet come with their content."""
    logs: Sequence[LogSegment] = ()
    """Determinants of upstream tasks since their own restart points on which the state depends (E8)."""
    forced: bool = False
    """Whether it was forced by frames that were about to be taken (E10)."""
    record: Sequence[Chunk] = ()
    """The task's own determinants since its restart point before this snapshot, in pieces from snapshot to snapshot
    (F1); empty unless the job records. Each row is an encoded segment."""
    without_log: int = -1
    """Of a job that records: the checkpoint (0: the start) from which the task last restarted without its log; -1: it
    has not."""


class OperatorHandle(msgspec.Struct, frozen=True):
    """The location of one operator instance's snapshot. ``values``: OperatorState.values as msgpack."""

    tables: dict[str, list[StoredChunk]]
    values: bytes

    def within(self, groups: range) -> OperatorHandle:
        """The snapshot for a task that owns these key groups, and need not read those of others."""
        tables = {table: [chunk.within(groups) for chunk in chunks] for table, chunks in self.tables.items()}
        return OperatorHandle(tables, self.values)


class TaskHandle(msgspec.Struct, frozen=True):
    """The location of a task's snapshot, which the task reports to the coordinator once all of it is durable."""

    task: TaskId
    checkpoint: int
    operators: dict[str, OperatorHandle]
    progress: bytes
    committables: dict[str, list[bytes]]
    written_bytes: int = 0
    """The bytes newly written for this snapshot; chunks of earlier ones are referenced."""
    frames: dict[int, list[StoredFrames]] = {}
    """By output channel: see TaskSnapshot."""
    logs: StoredChunk | None = None
    """See TaskSnapshot: one row for each segment."""
    forced: bool = False
    """See TaskSnapshot."""
    record: list[StoredChunk] = []
    """See TaskSnapshot: the pieces, oldest first. A restart does not need them."""
    without_log: int = -1
    """See TaskSnapshot."""

    @property
    def locations(self) -> Iterator[str]:
        """The locations of everything that the snapshot consists of, its record not included."""
        for operator in self.operators.values():
            for chunks in operator.tables.values():
                yield from (chunk.location for chunk in chunks)
        for frames in self.frames.values():
            yield from (stored.location for stored in frames)
        if self.logs is not None:
            yield self.logs.location


def numbering_of(lineage: str, renumberings: int) -> str:
    """The name of a frame numbering, see OperatorContext."""
    return f"{lineage}-{renumberings}"


def lineage_of(numbering: str) -> str:
    """The lineage in a name made by ``numbering_of``."""
    return numbering.rpartition("-")[0]


class WeightedSum(msgspec.Struct, frozen=True, array_like=True):
    """The state of a mean that forgets."""

    sum: float = 0.0
    weight: float = 0.0


class KeptEstimates(msgspec.Struct, frozen=True):
    """What a job has measured to find its checkpoint interval (E20), for the next coordinator. Seconds."""

    elapsed_s: float
    lost_s: float
    expected: float
    expected_s: float
    failures: float
    rollbacks: float
    seconds: float
    """The time in which the failures came."""
    since_s: float
    """The time since the last failure."""
    task: TaskId | None
    """The task that limits the job, of which ``cost`` and ``busy`` are; None: no snapshot was measured."""
    cost: WeightedSum
    busy: WeightedSum
    duration: WeightedSum
    growth: WeightedSum
    restart: WeightedSum
    rollback_restart: WeightedSum
    speed: WeightedSum


class Recorded(msgspec.Struct, frozen=True):
    """What a job that records keeps with each checkpoint, for a replay (F1)."""

    record_us: int
    """How long the job keeps its determinants: the setting ``record``; 0: up to ``record_bytes``."""
    settings: dict[str, str] = {}
    """See ``PhysicalPlan.written_settings``."""
    completed_ms: int = 0
    """The time of day at which the manifest was written, in milliseconds since 1970, UTC."""
    first: bool = False
    """Whether it is the first checkpoint of its lineage: its record goes back to the beginning of the job."""
    resumed: tuple[int, int, int] | None = None
    """Checkpoint, generation and time of completion of the recorded checkpoint with which its run began, if another run
    had written it."""
    record_bytes: int = 0
    """The size up to which the job keeps its determinants, with all that replays need."""


class Manifest(msgspec.Struct, frozen=True):
    """A completed checkpoint: the handles of all tasks. It is complete when, and only when, its manifest is written."""

    job: str
    checkpoint: int
    generation: int
    key_groups: int
    parallelism: dict[str, int]
    tasks: list[TaskHandle]
    """The newest counting snapshot of each task."""
    operators: dict[str, str] = {}
    """By stable operator name: the vertex that it ran in."""
    code_digest: str = ""
    """The digest of the user's modules; empty if none was computed."""
    lineage: str = ""
    """The name of the lineage: drawn when it began, and the same for all runs that resume from it."""
    protocol: str = ""
    """The checkpoint protocol that its tasks followed."""
    rollback: bool = False
    """Whether nothing was logged, so that tasks go back to snapshots that fit together."""
    earlier: list[TaskHandle] = []
    """Earlier snapshots to which tasks may still have to go back, oldest first for each task."""
    renumberings: int = 0
    """How often since the lineage began a change of parallelism or of operators has restarted frame numbers at 0."""
    kinds: dict[str, str] = {}
    """By name: the verb of each operator with state or results to commit, sources included."""
    run: str = ""
    """The name of the run that took it, the same for all coordinators of a run."""
    closed: list[str] = []
    """The operators that had reached the end of all input in an earlier run of the lineage."""
    definitions: dict[str, StateDefinition] = {}
    """By name: what the state of an operator means."""
    estimates: KeptEstimates | None = None
    """None unless the job finds its checkpoint interval."""
    recorded: Recorded | None = None
    """None unless the job records its determinants."""
    decided: list[str] = []
    """The operators whose state runs of the lineage have dropped or renamed, by their names before."""

    @property
    def handles(self) -> Iterator[TaskHandle]:
        """All snapshots that the manifest names."""
        yield from self.earlier
        yield from self.tasks

    def of_other_code(self, code_digest: str) -> bool:
        """Whether the digests show that other code has written it; False if either is unknown."""
        return bool(self.code_digest and code_digest) and self.code_digest != code_digest

    @property
    def coordinated(self) -> bool:
        """Whether all tasks took their snapshots for this checkpoint, none alone."""
        return all(handle.checkpoint == self.checkpoint for handle in self.handles)

    def parts(self, operator: str) -> list[OperatorHandle]:
        """The snapshots of all instances of an operator, by index."""
        owners = sorted((t for t in self.tasks if operator in t.operators), key=lambda t: t.task.index)
        return [t.operators[operator] for t in owners]


class RecordTail(msgspec.Struct, frozen=True):
    """What a process held of logs when its job ended by an error: of its own task since the restart point, and of tasks
    upstream (F1)."""

    task: TaskId
    attempt: Attempt
    logs: list[LogSegment]
    interval: Manifest
    """What the next manifest would say of the job, but no snapshots. Its checkpoint is the last completed one, or 0."""
