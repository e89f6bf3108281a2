"""Snapshots, states and manifests of a small job, for the tests of both stores."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import pyarrow as pa

from clonos_py.causal.codec import encode
from clonos_py.causal.determinants import InputOrder
from clonos_py.checkpoint.log_chunks import log_chunk
from clonos_py.checkpoint.store import SnapshotStore
from clonos_py.model.errors import CheckpointError
from clonos_py.model.ids import Attempt, TaskId
from clonos_py.model.segments import LogSegment
from clonos_py.model.snapshots import Manifest, TaskHandle, TaskSnapshot
from clonos_py.model.state import GROUP_COLUMN, Chunk, OperatorState

JOB = "hot auctions"
JOIN = TaskId("join", 0)
FIRST = Attempt(1, 0)


def chunk(start: int, rows: int = 4) -> Chunk:
    return Chunk(
        pa.record_batch(
            {
                GROUP_COLUMN: pa.array([i % 128 for i in range(start, start + rows)], pa.int32()),
                "id": pa.array(range(start, start + rows), pa.int64()),
                "name": pa.array([None if i % 3 == 0 else f"n{i}" for i in range(start, start + rows)], pa.string()),
            }
        )
    )


def snapshot(checkpoint: int, chunks: Sequence[Chunk], task: TaskId = JOIN) -> TaskSnapshot:
    state = OperatorState(
        {"rows": list(chunks)}, {"count": checkpoint, "marks": [1, None, b"x"], "by_id": {7: "seven"}}
    )
    return TaskSnapshot(task, checkpoint, {"join": state}, b"progress", {"out": [b"staged", b"staged before"]})


def segments(epoch: int, start: int, count: int = 3, task: TaskId = JOIN) -> list[LogSegment]:
    """The log of an epoch, which begins at offset ``start``: one determinant in each segment."""
    payload = encode([InputOrder(0, 1)])
    return [LogSegment(task.log_id, epoch, start, start + number, 1, payload) for number in range(count)]


def recorded(checkpoint: int, pieces: Sequence[Chunk], task: TaskId = JOIN) -> TaskSnapshot:
    """A snapshot that names these pieces of its task's log."""
    return TaskSnapshot(task, checkpoint, {}, b"progress", record=list(pieces))


def piece(epoch: int, start: int, count: int = 3, task: TaskId = JOIN) -> Chunk:
    return log_chunk(segments(epoch, start, count, task))


def manifest(checkpoint: int, *handles: TaskHandle, generation: int = 1, job: str = JOB) -> Manifest:
    return Manifest(job, checkpoint, generation, 128, {"join": len(handles)}, list(handles), {"join": "join"})


def begin(store: SnapshotStore) -> None:
    """Opens the first generation, unless one has been opened."""
    with suppress(CheckpointError):
        store.open_generation(after=0)


def complete(store: SnapshotStore, checkpoint: int, chunks: Sequence[Chunk], generation: int = 1) -> Manifest:
    """Completes a checkpoint of one task."""
    begin(store)
    handle = store.write(snapshot(checkpoint, chunks), Attempt(generation, 0))
    done = manifest(checkpoint, handle, generation=generation)
    store.write_manifest(done)
    return done


def rows_of(state: OperatorState, table: str = "rows") -> list[dict[str, object]]:
    return [row for part in state.tables[table] for row in part.rows.to_pylist()]
