"""The contract of both stores: files and memory behave alike."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clonos_py.checkpoint.layout import FileOrigin, origin, writer_name
from clonos_py.checkpoint.memory import MemoryStore
from clonos_py.checkpoint.store import SnapshotStore
from clonos_py.model.errors import CheckpointError
from clonos_py.model.ids import TaskId
from clonos_py.model.snapshots import FrameRecord, FrameRun, StoredFrames, TaskSnapshot
from clonos_py.model.state import Chunk, OperatorState
from tests.unit.checkpoint.stores import (
    FIRST,
    JOB,
    JOIN,
    begin,
    chunk,
    complete,
    manifest,
    piece,
    recorded,
    rows_of,
    segments,
    snapshot,
)


def test_a_snapshot_is_read_back_as_it_was_written(store: SnapshotStore) -> None:
    first, second = chunk(0), chunk(4, rows=9)
    handle = store.write(snapshot(1, [first, second]), FIRST)
    state = store.read(handle.operators["join"])
    assert [c.rows for c in state.tables["rows"]] == [first.rows, second.rows]
    assert state.values == {"count": 1, "marks": [1, None, b"x"], "by_id": {7: "seven"}}
    assert (handle.task, handle.checkpoint, handle.progress) == (JOIN, 1, b"progress")
    assert handle.committables == {"out": [b"staged", b"staged before"]}


def test_a_stored_chunk_is_not_written_again(store: SnapshotStore) -> None:
    old = chunk(0, rows=1000)
    first = store.write(snapshot(1, [old]), FIRST)
    location = old.location
    second = store.write(snapshot(2, [old, chunk(1000, rows=1)]), FIRST)
    assert old.location == location
    assert 0 < second.written_bytes < first.written_bytes
    assert store.write(snapshot(3, [old]), FIRST).written_bytes == 0
    assert len(rows_of(store.read(second.operators["join"]))) == 1001


def test_a_standby_reads_only_chunks_that_it_does_not_hold(store: SnapshotStore) -> None:
    old = chunk(0)
    store.write(snapshot(1, [old]), FIRST)
    handle = store.write(snapshot(2, [old, chunk(4)]), FIRST)
    held = Chunk(old.rows, old.location)
    state = store.read(handle.operators["join"], {old.location or "": held})
    assert state.tables["rows"][0] is held
    assert len(rows_of(state)) == 8


def test_chunks_read_back_carry_their_location(store: SnapshotStore) -> None:
    handle = store.write(snapshot(1, [chunk(0)]), FIRST)
    restored = store.read(handle.operators["join"])
    again = store.write(TaskSnapshot(JOIN, 2, {"join": restored}, b""), FIRST)
    assert again.written_bytes == 0
    assert again.operators["join"].tables == handle.operators["join"].tables


def test_empty_states_and_empty_chunks_survive(store: SnapshotStore) -> None:
    operators = {"stateless": OperatorState(), "join": OperatorState({"rows": [chunk(0, rows=0)], "none": []})}
    handle = store.write(TaskSnapshot(JOIN, 1, operators, b""), FIRST)
    assert store.read(handle.operators["stateless"]) == OperatorState({}, {})
    assert store.read(handle.operators["join"]).tables["rows"][0].rows.num_rows == 0


def test_a_value_that_is_not_plain_is_refused_with_the_name_of_its_operator(store: SnapshotStore) -> None:
    with pytest.raises(CheckpointError, match=r"'join'.*cannot be stored"):
        store.write(TaskSnapshot(JOIN, 1, {"join": OperatorState({}, {"x": object()})}, b""), FIRST)


def test_a_checkpoint_is_complete_when_its_manifest_is_written(store: SnapshotStore) -> None:
    begin(store)
    assert store.latest() is None
    handle = store.write(snapshot(1, [chunk(0)]), FIRST)
    assert store.latest() is None
    store.write_manifest(manifest(1, handle))
    assert store.latest() == manifest(1, handle)


def test_the_newest_manifest_is_the_one_with_the_highest_checkpoint(store: SnapshotStore) -> None:
    for checkpoint in (9, 10, 11):
        complete(store, checkpoint, [chunk(checkpoint)])
    latest = store.latest()
    assert latest is not None
    assert latest.checkpoint == 11
    assert [m.checkpoint for m in store.manifests()] == [9, 10, 11]


def test_retiring_keeps_the_chunks_of_the_kept_checkpoints(store: SnapshotStore) -> None:
    lasting, chunks = chunk(0), [chunk(10 * n) for n in range(1, 6)]
    done = [complete(store, n, [lasting, chunks[n - 1]]) for n in range(1, 6)]
    store.retire(keep=2)
    assert [m.checkpoint for m in store.manifests()] == [4, 5]
    for kept in done[3:]:
        assert len(rows_of(store.read(kept.tasks[0].operators["join"]))) == 8
    with pytest.raises(CheckpointError, match="missing"):
        store.read(done[1].tasks[0].operators["join"])


def test_retiring_does_not_touch_a_checkpoint_that_is_being_written(store: SnapshotStore) -> None:
    complete(store, 1, [chunk(0)])
    pending = store.write(snapshot(3, [chunk(8)]), FIRST)
    complete(store, 2, [chunk(4)])
    store.retire(keep=1)
    store.write_manifest(manifest(3, pending))
    assert rows_of(store.read(pending.operators["join"])) == chunk(8).rows.to_pylist()


def test_chunks_of_an_aborted_checkpoint_serve_later_ones_and_are_then_deleted(store: SnapshotStore) -> None:
    kept, dropped = chunk(0), chunk(4)
    aborted = store.write(snapshot(1, [kept, dropped]), FIRST)
    for checkpoint in (2, 3, 4):
        last = complete(store, checkpoint, [kept, chunk(checkpoint * 10)])
        store.retire(keep=1)
    assert rows_of(store.read(last.tasks[0].operators["join"]))[:4] == kept.rows.to_pylist()
    assert aborted.operators["join"].tables["rows"][0].location == kept.location


def test_a_savepoint_outlives_all_checkpoints(store: SnapshotStore) -> None:
    saved = complete(store, 1, [chunk(0)])
    store.write_savepoint("before/upgrade", saved)
    for checkpoint in (2, 3, 4):
        complete(store, checkpoint, [chunk(checkpoint * 10)])
        store.retire(keep=1)
    assert store.savepoints() == {"before/upgrade": saved}
    assert rows_of(store.read(saved.tasks[0].operators["join"])) == chunk(0).rows.to_pylist()
    with pytest.raises(CheckpointError, match="never overwritten"):
        store.write_savepoint("before/upgrade", saved)


def test_a_checkpoint_that_needs_logs_is_no_savepoint(store: SnapshotStore) -> None:
    begin(store)
    handle = store.write(replace(snapshot(1, [chunk(0)]), logs=segments(0, 0)), FIRST)
    with pytest.raises(CheckpointError, match="checkpoint 1 cannot be kept: its tasks take snapshots alone"):
        store.write_savepoint("alone", manifest(1, handle, generation=1))
    assert store.savepoints() == {}


def test_generations_are_numbered_consecutively(store: SnapshotStore) -> None:
    assert [store.open_generation() for _ in range(3)] == [1, 2, 3]


def test_a_replaced_coordinator_can_complete_no_checkpoint(store: SnapshotStore) -> None:
    store.open_generation()
    handle = store.write(snapshot(1, [chunk(0)]), FIRST)
    store.open_generation()
    with pytest.raises(CheckpointError, match="generation 2 has taken over"):
        store.write_manifest(manifest(1, handle, generation=1))
    assert store.latest() is None


def test_archiving_removes_all_checkpoints_but_generations_continue(store: SnapshotStore) -> None:
    assert store.archive() is None
    store.open_generation()
    complete(store, 7, [chunk(0)])
    assert store.archive() is not None
    assert store.latest() is None
    assert store.open_generation() == 2
    complete(store, 1, [chunk(4)], generation=2)
    assert [m.checkpoint for m in store.manifests()] == [1]


def test_a_planned_failure_changes_nothing_and_happens_once() -> None:
    store = MemoryStore(JOB)
    store.fail_next("write_manifest")
    handle = store.write(snapshot(1, [chunk(0)]), FIRST)
    with pytest.raises(CheckpointError, match="planned"):
        store.write_manifest(manifest(1, handle))
    assert store.latest() is None
    store.write_manifest(manifest(1, handle))
    assert store.latest() is not None


def test_a_replaced_coordinator_can_open_no_generation(store: SnapshotStore) -> None:
    first = store.open_generation()
    assert store.open_generation(after=first) == first + 1
    with pytest.raises(CheckpointError, match=f"generation {first + 1} has taken over"):
        store.open_generation(after=first)
    assert store.open_generation() == first + 2


def test_an_adopted_checkpoint_stays_the_last_one_after_writes_of_a_replaced_coordinator(
    store: SnapshotStore,
) -> None:
    first = store.open_generation()
    complete(store, 1, [chunk(0)], generation=first)
    late = store.write(snapshot(2, [chunk(4)]), FIRST)
    store.open_generation()
    with pytest.raises(CheckpointError, match="is refused"):
        store.write_manifest(manifest(2, late, generation=first))
    latest = store.latest()
    assert latest is not None
    assert latest.checkpoint == 1


def test_answers_are_kept_as_long_as_a_checkpoint_before_them(store: SnapshotStore) -> None:
    names = [store.keep_answer(epoch, JOIN, 3, f"answer {epoch}".encode()) for epoch in (0, 1, 2)]
    assert [store.kept_answer(name) for name in names] == [b"answer 0", b"answer 1", b"answer 2"]
    store.open_generation()
    complete(store, 1, [chunk(0)])
    complete(store, 2, [chunk(4)])
    store.retire(keep=1)
    assert store.kept_answer(names[2]) == b"answer 2"
    for name in names[:2]:
        with pytest.raises(CheckpointError, match="missing"):
            store.kept_answer(name)


@pytest.mark.parametrize(
    "name",
    [
        "../../../../etc/passwd",
        "000000000001.join-0.3/../../../other.6b1f0c6b1f0c6b1f0c6b1f0c6b1f0c6b.answer",
        "/etc/passwd",
        "",
        "000000000001.join-0.3.6b1f.answer",
        "000000000001.join-0.3.6b1f0c6b1f0c6b1f0c6b1f0c6b1f0c6b.answer\n",
    ],
)
def test_a_log_cannot_lead_out_of_the_folder_of_answers(store: SnapshotStore, name: str) -> None:
    with pytest.raises(CheckpointError, match="is not the name of a stored answer: the log that names it is damaged"):
        store.kept_answer(name)


@pytest.mark.parametrize("vertex", ["join", "a/b", "..", "j\u00f6in[0].12", "x-1.2.3.chunks"])
def test_files_are_found_and_have_their_origin_under_any_vertex_name(store: SnapshotStore, vertex: str) -> None:
    task = TaskId(vertex, 12)
    name = store.keep_answer(7, task, 3, b"answer")
    assert store.kept_answer(name) == b"answer"
    handle = store.write(snapshot(4, [chunk(0)], task), FIRST)
    file = next(handle.locations).removeprefix("state/").partition("#")[0]
    assert (origin(name), origin(file)) == (FileOrigin(7, writer_name(task)), FileOrigin(4, writer_name(task)))
    assert origin(f"{file}.incomplete") == FileOrigin(4, writer_name(task))


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_an_answer_is_kept_for_every_checkpoint_that_needs_it_and_then_deleted(store: SnapshotStore, keep: int) -> None:
    store.open_generation()
    names: list[str] = []
    for checkpoint in range(1, 9):
        names.append(store.keep_answer(checkpoint - 1, JOIN, 0, b"%d" % checkpoint))
        complete(store, checkpoint, [chunk(checkpoint)])
        store.retire(keep)
        oldest_kept = max(1, checkpoint - keep + 1)
        for epoch, name in enumerate(names):
            if epoch >= oldest_kept:
                assert store.kept_answer(name) == b"%d" % (epoch + 1)
            else:
                with pytest.raises(CheckpointError, match="missing"):
                    store.kept_answer(name)


def run(*seqs: int) -> FrameRun:
    """Frames with rows, the last one but with none."""
    batches = [chunk(seq).rows for seq in seqs[:-1]]
    bodies = [batch.serialize() for batch in batches]
    records = [
        FrameRecord(seq, 0, 1, 7, False, 0, b"stamp", 4, body.size) for seq, body in zip(seqs, bodies, strict=False)
    ]
    records.append(FrameRecord(seqs[-1], 1, 1, 7, True, 1, b"", 0, 0))
    return FrameRun(batches[0].schema, records, [*bodies, None])


def test_frames_in_flight_are_stored_once_and_kept_as_long_as_a_checkpoint_needs_them(store: SnapshotStore) -> None:
    begin(store)
    first = store.write(replace(snapshot(1, []), frames={2: [run(3, 4, 5)], 3: [run(0, 1)]}), FIRST)
    store.write_manifest(manifest(1, first))
    (stored,) = first.frames[2]
    assert (stored.start, stored.stop, stored.rows) == (3, 6, 8)
    for checkpoint in (2, 3):
        part = StoredFrames(stored.location, 4, 6, 4)
        later = store.write(replace(snapshot(checkpoint, []), frames={2: [part, run(6, 7)]}), FIRST)
        assert 0 < later.written_bytes < first.written_bytes
        assert [(f.start, f.stop, f.rows) for f in later.frames[2]] == [(4, 6, 4), (6, 8, 4)]
        store.write_manifest(manifest(checkpoint, later))
    store.retire(keep=1)
    assert same(store.read_frames([stored.location])[stored.location], run(3, 4, 5))
    assert same(store.read_frames([later.frames[2][1].location]).popitem()[1], run(6, 7))
    store.write_manifest(manifest(4, store.write(snapshot(4, []), FIRST)))
    store.retire(keep=1)
    with pytest.raises(CheckpointError):
        store.read_frames([stored.location])


def same(one: FrameRun, other: FrameRun) -> bool:
    return (one.schema, one.records, one.bodies) == (other.schema, other.records, other.bodies)


# ---- recorded logs


def test_the_pieces_of_a_log_are_read_back_in_order(store: SnapshotStore) -> None:
    handle = store.write(recorded(2, [piece(0, 0), piece(1, 3)]), FIRST)
    assert store.read_record(handle.record) == [*segments(0, 0), *segments(1, 3)]
    assert store.read_record([]) == []


def test_a_stored_piece_is_referred_to_and_not_written_again(store: SnapshotStore) -> None:
    first = piece(0, 0)
    aborted = store.write(recorded(1, [first]), FIRST)
    later = store.write(recorded(2, [first, piece(1, 3)]), FIRST)
    assert later.record[0] == aborted.record[0]
    assert store.read_record(later.record) == [*segments(0, 0), *segments(1, 3)]
    assert store.write(recorded(3, [first]), FIRST).written_bytes == 0


def test_a_record_is_no_part_of_what_a_restart_needs(store: SnapshotStore) -> None:
    assert list(store.write(recorded(1, [piece(0, 0)]), FIRST).locations) == []


def test_a_manifest_keeps_the_locations_of_records(store: SnapshotStore) -> None:
    begin(store)
    handle = store.write(recorded(1, [piece(0, 0)]), FIRST)
    store.write_manifest(manifest(1, handle))
    latest = store.latest()
    assert latest is not None
    assert latest.tasks == [handle]
