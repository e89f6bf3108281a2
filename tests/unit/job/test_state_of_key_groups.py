"""At another parallelism a task reads the state of its own key groups, and not all that former tasks have stored."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from clonos_py.checkpoint.memory import MemoryStore
from clonos_py.checkpoint.storage import CheckpointStore
from clonos_py.checkpoint.store import SnapshotStore
from clonos_py.columns.views import concat, fixed
from clonos_py.job.completed import CompletedCheckpoint
from clonos_py.model.ids import FIRST_ATTEMPT, TaskId
from clonos_py.model.plan import PhysicalPlan
from clonos_py.model.snapshots import Manifest, OperatorHandle, TaskHandle, TaskSnapshot
from clonos_py.model.state import GROUP_COLUMN, Chunk, OperatorState
from clonos_py.operators.keyed_chunks import owned
from tests.unit.job.stage import chain

GROUPS, NAMES = 128, ("middle", "sink")
CHUNKS = 3


def at(parallelism: int) -> PhysicalPlan:
    plan = chain()
    vertices = tuple(replace(vertex, parallelism=parallelism) for vertex in plan.vertices)
    return replace(plan, vertices=vertices)


def rows_of(groups: range, number: int) -> pa.RecordBatch:
    chosen = pa.array(list(groups)[number::CHUNKS], pa.int32())
    return pa.record_batch({"value": pa.array([f"group {g}" for g in chosen.to_pylist()]), GROUP_COLUMN: chosen})


def checkpoint(store: SnapshotStore, parallelism: int) -> Manifest:
    """Of operator and sink, in each of its tasks a few chunks with rows of all its key groups."""
    plan, tasks = at(parallelism), list[TaskHandle]()
    for task in plan.tasks:
        if task.vertex in NAMES:
            chunks = [Chunk(rows_of(plan.groups(task), number)) for number in range(CHUNKS)]
            state = OperatorState({"rows": chunks, "no rows": []}, {"index": task.index})
            tasks.append(store.write(TaskSnapshot(task, 1, {task.vertex: state}, b""), FIRST_ATTEMPT))
        else:
            tasks.append(TaskHandle(task, 1, {}, b"", {}))
    completed = CompletedCheckpoint(plan, None, "", "lineage")
    return completed.next(1, 1, tasks)


def parts(manifest: Manifest, task: TaskId, parallelism: int) -> list[OperatorHandle]:
    return CompletedCheckpoint(at(parallelism), manifest, "", "lineage").restart(task).operators[task.vertex]


def read_bytes(handles: list[OperatorHandle]) -> int:
    return sum(chunk.size_bytes for handle in handles for chunks in handle.tables.values() for chunk in chunks)


@pytest.fixture(params=["files", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> SnapshotStore:
    return CheckpointStore(str(tmp_path), "stage") if request.param == "files" else MemoryStore("stage")


@pytest.mark.parametrize(("before", "after"), [(4, 8), (8, 4), (1, 3), (3, 2), (5, 7)])
def test_each_task_gets_all_rows_of_its_key_groups(store: SnapshotStore, before: int, after: int) -> None:
    manifest, groups = checkpoint(store, before), list[int]()
    for index in range(after):
        task = TaskId("middle", index)
        states = [store.read(handle) for handle in parts(manifest, task, after)]
        assert [state.values["index"] for state in states] == list(range(before)), "values of all former instances"
        assert [[len(chunks) for chunks in state.tables.values()] for state in states] == [[CHUNKS, 0]] * before
        own = owned((chunk for state in states for chunk in state.tables["rows"]), at(after).groups(task))
        rows = concat([chunk.rows for chunk in own])
        assert rows.column("value").to_pylist() == [f"group {group}" for group in rows.column(GROUP_COLUMN).to_pylist()]
        groups += fixed(rows.column(GROUP_COLUMN)).tolist()
    assert sorted(groups) == list(range(GROUPS))


def test_from_four_tasks_to_eight_each_reads_what_one_has_stored(tmp_path: Path) -> None:
    manifest = checkpoint(CheckpointStore(str(tmp_path), "stage"), 4)
    stored = [read_bytes(manifest.parts("middle")[index : index + 1]) for index in range(4)]
    assert [read_bytes(parts(manifest, TaskId("middle", index), 8)) for index in range(8)] == [
        stored[index // 2] for index in range(8)
    ]


def test_the_rows_of_a_sink_belong_to_no_key_group(tmp_path: Path) -> None:
    manifest = checkpoint(CheckpointStore(str(tmp_path), "stage"), 4)
    assert {read_bytes(parts(manifest, TaskId("sink", index), 8)) for index in range(8)} == {
        read_bytes(manifest.parts("sink"))
    }


def test_chunks_whose_key_groups_are_unknown_are_read(tmp_path: Path) -> None:
    """A checkpoint of an earlier version does not name them."""
    chunk = checkpoint(CheckpointStore(str(tmp_path), "stage"), 4).parts("middle")[0].tables["rows"][0]
    assert chunk.groups == (0, 30)
    unknown = type(chunk)(chunk.location, chunk.rows, chunk.size_bytes, chunk.checksum)
    assert unknown.within(range(100, 110)) is unknown
    assert chunk.within(range(100, 110)).of_others
    assert chunk.within(range(100, 110)).unread().rows.num_rows == chunk.rows, "bits of rows are found by their place"
    assert chunk.within(range(30, 110)) is chunk
    assert chunk.within(range(31, 110)).of_others
