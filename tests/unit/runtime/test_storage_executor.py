"""Which parts of each new checkpoint a standby reads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from msgspec.structs import replace

from clonos_py.checkpoint.storage import CheckpointStore
from clonos_py.columns.keys import hash_rows
from clonos_py.link.instructions import Commit, LinkEvent, Load, Loaded, LoadFailed, Persist
from clonos_py.model.errors import SinkError
from clonos_py.model.ids import Attempt, LogId, TaskId
from clonos_py.model.messages import Restore
from clonos_py.model.operators import CausalSink, Sink
from clonos_py.model.segments import LogSegment
from clonos_py.model.snapshots import FrameRecord, FrameRun, StoredFrames, TaskSnapshot
from clonos_py.model.state import Chunk, OperatorState
from clonos_py.operators.history import History
from clonos_py.runtime.executors.low_priority import AtOnce
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


def test_a_standby_reads_only_the_chunks_that_it_does_not_have(tmp_path: Path) -> None:
    """Chunks that it holds may even be gone from storage."""
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
    assert isinstance(failed, LoadFailed), "a standby without state reads everything"


class Kept(Sink):
    """A sink whose rows are in the checkpoint."""

    def __init__(self) -> None:
        self.calls: list[object] = []

    def loaded(self, parts: Sequence[OperatorState]) -> None:
        self.calls.append([part.tables["rows"][0].rows.num_rows for part in parts])

    def commit(self, committable: bytes) -> None:
        self.calls.append(committable)


def test_a_sink_gets_the_snapshot_before_it_commits_the_committables_in_it(tmp_path: Path) -> None:
    store, sink = CheckpointStore(str(tmp_path), "job"), Kept()
    made = StorageExecutor(store, {"join": sink}, lambda: 0, Background("loads"))
    load(made, restore(store, 1, chunk(1, 2)))
    made.carry_out(Commit(1, {"join": [b"1", b"2"], "other": [b"3"]}))
    assert sink.calls == [[2], b"1", b"2"]


class Away(CausalSink):
    """A causal sink whose medium does not answer."""

    warmed_up = 0

    def warm_up(self) -> None:
        self.warmed_up += 1
        raise SinkError("nobody answers")


def test_a_sink_that_cannot_connect_ahead_does_not_end_the_process(tmp_path: Path) -> None:
    sinks = {"away": Away(), "other": Away()}
    made = StorageExecutor(CheckpointStore(str(tmp_path), "job"), {**sinks, "rows": Kept()}, lambda: 0, AtOnce())
    made.warm_up()
    assert [sink.warmed_up for sink in sinks.values()] == [1, 1]


def test_a_standby_reads_only_the_new_part_of_a_growing_state(tmp_path: Path) -> None:
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


def run(start: int, stop: int) -> FrameRun:
    """Frames of a row each."""
    bodies = [chunk(seq).rows.serialize() for seq in range(start, stop)]
    records = [FrameRecord(seq, 0, 0, 0, False, 0, b"", 1, body.size) for seq, body in enumerate(bodies, start)]
    return FrameRun(chunk(0).rows.schema, records, bodies)


def log(offset: int) -> LogSegment:
    return LogSegment(LogId(0), 0, offset, 0, 1, b"x")


def seqs(event: object) -> list[int]:
    assert isinstance(event, Loaded)
    return [record.seq for run in event.frames.get(0, ()) for record in run.records]


def test_a_standby_reads_only_the_new_stored_frames(tmp_path: Path) -> None:
    """Counted in bytes. Each snapshot is stored with a new run of frames, and needs a frame of the oldest one less."""
    store, standby = CheckpointStore(str(tmp_path), "job"), executor(tmp_path)
    counted = count_reads(standby)
    named: list[StoredFrames] = []
    for checkpoint in range(1, 20):
        parts: list[StoredFrames | FrameRun] = [*named, run(3 * checkpoint, 3 * checkpoint + 3)]
        handle = store.write(TaskSnapshot(TASK, checkpoint, {}, b"", frames={0: parts}), Attempt(1, 1))
        counted.clear()
        (loaded,) = load(standby, Restore(checkpoint, frames=handle.frames))
        assert sum(counted) == handle.written_bytes
        first = handle.frames[0][0].start
        assert seqs(loaded) == list(range(first, 3 * checkpoint + 3))
        assert standby.snapshots.known == set(handle.locations)
        named = without(first, handle.frames[0])
    assert len(named) > 5, "the test proves little"


def without(seq: int, stored: list[StoredFrames]) -> list[StoredFrames]:
    """The frame of this number, which is the first, is no longer needed."""
    first, *others = stored
    return ([replace(first, start=seq + 1, rows=first.rows - 1)] if first.stop > seq + 1 else []) + others


def test_a_standby_does_not_read_a_checkpoint_again(tmp_path: Path) -> None:
    store, standby = CheckpointStore(str(tmp_path), "job"), executor(tmp_path)
    counted = count_reads(standby)
    snapshot = TaskSnapshot(TASK, 1, {}, b"", frames={0: [run(0, 3)]}, logs=[log(5)])
    handle = store.write(snapshot, Attempt(1, 1))
    named = Restore(1, frames=handle.frames, logs=handle.logs)
    first, again = load(standby, named, named)
    assert sum(counted) == handle.written_bytes
    for loaded in (first, again):
        assert seqs(loaded) == [0, 1, 2]
        assert isinstance(loaded, Loaded)
        assert loaded.logs == [log(5)]


def test_logs_of_an_earlier_snapshot_are_replaced_by_those_of_the_next(tmp_path: Path) -> None:
    store, standby = CheckpointStore(str(tmp_path), "job"), executor(tmp_path)
    for checkpoint, logs in enumerate(([log(5)], [log(5), log(6)], []), 1):
        handle = store.write(TaskSnapshot(TASK, checkpoint, {}, b"", logs=logs), Attempt(1, 1))
        (loaded,) = load(standby, Restore(checkpoint, logs=handle.logs))
        assert isinstance(loaded, Loaded)
        assert list(loaded.logs) == logs


def count_reads(standby: StorageExecutor) -> list[int]:
    """The sizes of all later reads."""
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


def test_state_is_loaded_in_the_background_before_a_promotion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_task_releases_the_state_it_had_loaded(tmp_path: Path) -> None:
    store = CheckpointStore(str(tmp_path), "job")
    standby = executor(tmp_path)
    load(standby, restore(store, 1, chunk(1, 2)))
    standby.carry_out(Persist(TaskSnapshot(TASK, 2, {}, b""), Attempt(1, 2)))
    assert standby.snapshots.known == set()


def test_chunks_that_a_checkpoint_no_longer_needs_are_released(tmp_path: Path) -> None:
    store = CheckpointStore(str(tmp_path), "job")
    kept, dropped = chunk(1, 2), chunk(3)
    standby = executor(tmp_path)
    load(standby, restore(store, 1, kept, dropped), restore(store, 2, kept))
    assert standby.snapshots.known == {kept.location}
