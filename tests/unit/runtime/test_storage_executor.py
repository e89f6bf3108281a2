"""What a standby reads of each new checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from clonos_py.checkpoint.storage import CheckpointStore
from clonos_py.columns.keys import hash_rows
from clonos_py.link.instructions import LinkEvent, Load, Loaded, LoadFailed, Persist
from clonos_py.model.ids import Attempt, TaskId
from clonos_py.model.messages import Restore
from clonos_py.model.snapshots import TaskSnapshot
from clonos_py.model.state import Chunk, OperatorState
from clonos_py.operators.history import History
from clonos_py.runtime.executors.storage import StorageExecutor
from clonos_py.runtime.ray.background import Background

TASK = TaskId("join", 0)


def chunk(*values: int) -> Chunk:
    return Chunk(pa.record_batch({"value": values}))


def restore(store: CheckpointStore, checkpoint: int, *chunks: Chunk) -> Restore:
    """A checkpoint of a state of these chunks; only those without a location are written."""
    snapshot = TaskSnapshot(TASK, checkpoint, {"join": OperatorState({"rows": list(chunks)})}, b"")
    handle = store.write(snapshot, Attempt(1, 1))
    return Restore(checkpoint, {"join": [handle.operators["join"]]})


def values(event: object) -> list[Any]:
    assert isinstance(event, Loaded)
    (state,) = event.operators["join"]
    return [value for part in state.tables["rows"] for value in part.rows.column("value").to_pylist()]


def executor(folder: Path) -> StorageExecutor:
    return StorageExecutor(CheckpointStore(str(folder), "job"), {}, lambda: 0, Background("loads"))


def load(standby: StorageExecutor, *restores: Restore) -> list[LinkEvent]:
    return [event for one in restores for event in standby.carry_out(Load(one))]


def test_a_standby_reads_of_each_checkpoint_only_the_chunks_that_it_does_not_have(tmp_path: Path) -> None:
    """What it has may even be gone from storage."""
    store = CheckpointStore(str(tmp_path), "job")
    kept, dropped = chunk(1, 2), chunk(3)
    standby = executor(tmp_path)
    answers = load(standby, restore(store, 1, kept, dropped))
    second = restore(store, 2, kept, chunk(4))
    for file in (tmp_path / "job" / "line" / "state").glob("000000000001.*"):
        file.unlink()
    answers += load(standby, second)
    assert [values(answer) for answer in answers] == [[1, 2, 3], [1, 2, 4]]
    (failed,) = load(executor(tmp_path), second)
    assert isinstance(failed, LoadFailed), "a standby that has nothing reads everything"


def test_a_standby_reads_of_a_growing_state_no_more_than_was_written_since(tmp_path: Path) -> None:
    """Counted in bytes. Small pieces of state are merged now and then, as a join merges them."""
    store, history = CheckpointStore(str(tmp_path), "job"), History(["key"])
    standby = executor(tmp_path)
    counted = count_reads(standby)
    read, written, whole = [], [], []
    for checkpoint in range(1, 41):
        rows = pa.record_batch({"key": np.arange(1_000) + checkpoint, "value": np.arange(1_000)})
        history.append(rows, hash_rows(rows, ["key"]))
        snapshot = TaskSnapshot(TASK, checkpoint, {"join": OperatorState({"rows": history.chunks()})}, b"")
        handle = store.write(snapshot, Attempt(1, 1))
        counted.clear()
        (loaded,) = load(standby, Restore(checkpoint, {"join": [handle.operators["join"]]}))
        read.append(sum(counted))
        written.append(handle.written_bytes)
        whole.append(sum(chunk.size_bytes for chunk in handle.operators["join"].tables["rows"]))
        assert isinstance(loaded, Loaded)
        assert [c.rows for c in loaded.operators["join"][0].tables["rows"]] == [c.rows for c in history.chunks()]
    assert read == written
    assert sum(whole) > 5 * sum(read), "the test proves little"


def count_reads(standby: StorageExecutor) -> list[int]:
    """The sizes of all that is read from now on."""
    store = standby.snapshots._store
    assert isinstance(store, CheckpointStore)
    folder = store._folder
    sizes: list[int] = []
    read_ranges = folder.read_ranges

    def counting(path: str, ranges: Sequence[tuple[int, int]]) -> list[pa.Buffer]:
        found = read_ranges(path, ranges)
        sizes.extend(buffer.size for buffer in found)
        return found

    folder.read_ranges = counting  # type: ignore[method-assign]
    return sizes


def test_what_nobody_waits_for_is_loaded_in_the_background(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = CheckpointStore(str(tmp_path), "job")
    standby = executor(tmp_path)
    given: list[object] = []
    original = Background.do

    def do(self: Background, work: Any) -> Any:
        given.append(work)
        return original(self, work)

    monkeypatch.setattr(Background, "do", do)
    first, second = restore(store, 1, chunk(1)), restore(store, 2, chunk(2))
    answers = [*standby.carry_out(Load(first, ahead=True)), *load(standby, second)]
    assert [values(answer) for answer in answers] == [[1], [2]]
    assert len(given) == 1


def test_a_task_lets_go_of_what_it_once_loaded(tmp_path: Path) -> None:
    store = CheckpointStore(str(tmp_path), "job")
    standby = executor(tmp_path)
    load(standby, restore(store, 1, chunk(1, 2)))
    standby.carry_out(Persist(TaskSnapshot(TASK, 2, {}, b""), Attempt(1, 2)))
    assert standby.snapshots.known == {}


def test_what_a_checkpoint_does_not_need_any_more_is_let_go(tmp_path: Path) -> None:
    store = CheckpointStore(str(tmp_path), "job")
    kept, dropped = chunk(1, 2), chunk(3)
    standby = executor(tmp_path)
    load(standby, restore(store, 1, kept, dropped), restore(store, 2, kept))
    assert set(standby.snapshots.known) == {kept.location}
