"""What a job that records keeps: manifests and logs of its time, and the state of a few checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from clonos_py.checkpoint.folder import LocalFolder
from clonos_py.checkpoint.record_retention import SLOT_OF_A_SIZE_MS, SLOTS, RecordBase, RecordMeasures, kept_bases
from clonos_py.checkpoint.storage import CheckpointStore
from clonos_py.checkpoint.store import SnapshotStore
from clonos_py.model.errors import CheckpointError
from clonos_py.model.ids import Attempt
from clonos_py.model.snapshots import Manifest, Recorded, TaskSnapshot
from clonos_py.model.state import OperatorState
from tests.unit.checkpoint.stores import FIRST, JOB, JOIN, begin, chunk, manifest, piece, recorded, segments

SLOT_MS = 10
RECORD_US = SLOT_MS * SLOTS * 1_000
NOT_MEASURED = RecordMeasures(lambda base: 0, lambda bases: [])


def complete(
    store: SnapshotStore,
    checkpoint: int,
    completed_ms: int,
    record_us: int = RECORD_US,
    generation: int = 1,
    record_bytes: int = 0,
) -> Manifest:
    """Completes a checkpoint with state of its own, and a piece of three determinants."""
    begin(store)
    snapshot = TaskSnapshot(
        JOIN,
        checkpoint,
        {"join": OperatorState({"rows": [chunk(checkpoint)]})},
        b"progress",
        record=[piece(checkpoint - 1, 3 * checkpoint)] if record_us or record_bytes else (),
    )
    handle = store.write(snapshot, Attempt(generation, 0))
    done = manifest(checkpoint, handle, generation=generation)
    if record_us or record_bytes:
        recorded = Recorded(record_us, {"record": "1s"}, completed_ms, record_bytes=record_bytes)
        done = replace(done, recorded=recorded)
    store.write_manifest(done)
    return done


def numbers(manifests: list[Manifest]) -> list[int]:
    return [found.checkpoint for found in manifests]


def has_state(store: SnapshotStore, found: Manifest) -> bool:
    try:
        store.read(found.tasks[0].operators["join"])
    except CheckpointError:
        return False
    return True


def test_what_is_before_the_first_base_is_deleted(store: SnapshotStore) -> None:
    """No replay can start there."""
    done = [complete(store, n, completed_ms=4 * n) for n in range(1, 11)]
    store.retire(keep=2)
    assert (numbers(store.manifests()), numbers(store.bases())) == ([9, 10], [10])
    assert [found.checkpoint for found in done if has_state(store, found)] == [9, 10]


def test_the_first_checkpoint_of_each_part_of_the_time_is_a_base(store: SnapshotStore) -> None:
    done = []
    for n in range(1, 11):
        done.append(complete(store, n, completed_ms=4 * n))
        store.retire(keep=2)
    assert numbers(store.bases()) == [1, 3, 5, 8, 10]
    assert [found.checkpoint for found in done if has_state(store, found)] == [1, 3, 5, 8, 9, 10]
    assert numbers(store.manifests()) == list(range(1, 11))
    for found in store.manifests():
        assert store.read_record(found.tasks[0].record) == segments(found.checkpoint - 1, 3 * found.checkpoint)


def test_checkpoints_are_readable_whose_state_is_kept(tmp_path: Path) -> None:
    """Of the newest one a missing file is damage, which reading it names."""
    store = CheckpointStore(str(tmp_path), JOB)
    for n in range(1, 11):
        complete(store, n, completed_ms=4 * n)
        store.retire(keep=2)
    assert numbers(store.readable()) == [1, 3, 5, 8, 9, 10]
    for path in (tmp_path / "hot%20auctions" / "line" / "state").iterdir():
        path.unlink()
    assert numbers(store.readable()) == [10]


def test_what_is_before_the_last_base_at_the_beginning_of_the_time_is_deleted(store: SnapshotStore) -> None:
    names = {}
    for n in range(1, 101):
        names[n] = store.keep_answer(n, JOIN, 0, bytes([n]) * 3)
        last = complete(store, n, completed_ms=n * SLOT_MS)
        store.retire(keep=1)
    assert numbers(store.manifests()) == numbers(store.bases()) == list(range(4, 101)), (
        "a time of 96 slots, and one before"
    )
    assert has_state(store, store.manifests()[0])
    assert has_state(store, last)
    assert store.kept_answer(names[4]) == bytes([4]) * 3
    with pytest.raises(CheckpointError, match="missing"):
        store.kept_answer(names[3])


def test_records_are_deleted_in_whole_buckets(tmp_path: Path) -> None:
    store = CheckpointStore(str(tmp_path), JOB)
    records = Path(store.path) / "line/records"
    for n in (998, 999, 1_000, 1_001, 1_002):
        complete(store, n, completed_ms=n * SLOT_MS * SLOTS)
        store.retire(keep=1)
        if n == 1_000:
            assert {bucket.name for bucket in records.iterdir()} == {"000000000", "000000001"}, "999 is kept"
    assert [bucket.name for bucket in records.iterdir()] == ["000000001"]
    assert len(list((records / "000000001").iterdir())) == 3


def test_a_piece_of_an_aborted_checkpoint_in_an_earlier_bucket_is_kept(tmp_path: Path) -> None:
    store = CheckpointStore(str(tmp_path), JOB)
    early = piece(998, 0)
    store.write(recorded(999, [early]), FIRST)
    begin(store)
    handle = store.write(recorded(1_003, [early, piece(999, 3)]), FIRST)
    store.write_manifest(replace(manifest(1_003, handle), recorded=Recorded(RECORD_US, {}, 5)))
    store.retire(keep=1)
    assert store.read_record(handle.record) == [*segments(998, 0), *segments(999, 3)]


def test_a_record_that_is_off_is_deleted_like_other_files_of_old_checkpoints(store: SnapshotStore) -> None:
    for n in range(998, 1_002):
        complete(store, n, completed_ms=n * SLOT_MS)
        store.retire(keep=1)
    assert len(store.bases()) == 4
    for n in range(1_002, 1_004):
        complete(store, n, 0, record_us=0)
        store.retire(keep=1)
    assert numbers(store.manifests()) == [1_003]
    assert store.bases() == []


def test_the_buckets_of_a_record_that_is_off_are_deleted(tmp_path: Path) -> None:
    store = CheckpointStore(str(tmp_path), JOB)
    complete(store, 999, completed_ms=1)
    complete(store, 1_000, 0, record_us=0)
    complete(store, 1_001, 0, record_us=0)
    store.retire(keep=1)
    line = Path(store.path) / "line"
    assert list((line / "records").iterdir()) == []
    assert not (line / "bases").exists()


def test_another_coordinator_continues_with_the_bases(tmp_path: Path) -> None:
    store = CheckpointStore(str(tmp_path), JOB)
    for n in range(1, 6):
        complete(store, n, completed_ms=4 * n)
        store.retire(keep=1)
    later = CheckpointStore(str(tmp_path), JOB)
    assert numbers(later.bases()) == [1, 3, 5]
    assert later.open_generation() == 2
    complete(later, 6, completed_ms=24, generation=2)
    later.retire(keep=1)
    assert numbers(later.bases()) == [1, 3, 5], "5 is the first of the same part"


def test_a_base_whose_manifest_is_gone_is_none(tmp_path: Path) -> None:
    """As when somebody resumes from an earlier checkpoint by removing the newest one."""
    store = CheckpointStore(str(tmp_path), JOB)
    for n in (1, 2):
        complete(store, n, completed_ms=15 * n)
        store.retire(keep=1)
    (Path(store.path) / "line/manifests/000000000002.00000001.manifest").unlink()
    later = CheckpointStore(str(tmp_path), JOB)
    assert numbers(later.bases()) == [1]
    assert later.open_generation() == 2
    complete(later, 3, completed_ms=45, generation=2)
    later.retire(keep=1)
    assert numbers(later.bases()) == [1, 3]
    marks = (Path(store.path) / "line/bases").iterdir()
    assert sorted(file.name[:12] for file in marks) == ["000000000001", "000000000003"]


def test_manifests_that_this_store_has_written_are_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = CheckpointStore(str(tmp_path), JOB)
    read: list[str] = []
    original = LocalFolder.read

    def reading(self: LocalFolder, path: str) -> pa.Buffer:
        read.append(path)
        return original(self, path)

    for n in range(1, 120):
        complete(store, n, completed_ms=4 * n)
        with monkeypatch.context() as watched:
            watched.setattr(LocalFolder, "read", reading)
            store.retire(keep=1)
    assert {path for path in read if "generations" not in path} == set()


def test_records_are_listed_only_when_a_base_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = CheckpointStore(str(tmp_path), JOB)
    listed: list[str] = []
    original = LocalFolder.names

    def listing(self: LocalFolder, path: str) -> list[str]:
        listed.append(path)
        return original(self, path)

    monkeypatch.setattr(LocalFolder, "names", listing)
    for n in range(1, 11):
        complete(store, n, completed_ms=4 * n)
        store.retire(keep=1)
    assert listed.count("line/records") == len(store.bases()) == 5
    assert [path for path in listed if path.startswith("line/records/")] == []


def test_manifests_are_listed_only_when_a_base_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = CheckpointStore(str(tmp_path), JOB)
    for n in range(1, 4):
        complete(store, n, completed_ms=SLOT_MS + n)
        store.retire(keep=2)
    assert numbers(store.bases()) == [1]
    listed: list[str] = []
    original = LocalFolder.names

    def listing(self: LocalFolder, path: str) -> list[str]:
        listed.append(path)
        return original(self, path)

    with monkeypatch.context() as watched:
        watched.setattr(LocalFolder, "names", listing)
        store.retire(keep=2)
    assert "line/manifests" not in listed


def test_a_base_is_marked_again_if_its_mark_could_not_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = CheckpointStore(str(tmp_path), JOB)
    complete(store, 1, completed_ms=1)
    with monkeypatch.context() as failing:
        failing.setattr(LocalFolder, "write", _fail)
        with pytest.raises(CheckpointError, match="full"):
            store.retire(keep=1)
    store.retire(keep=1)
    assert numbers(CheckpointStore(str(tmp_path), JOB).bases()) == [1]


def test_what_could_not_be_deleted_is_deleted_by_the_next_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = CheckpointStore(str(tmp_path), JOB)
    for n in (1, 2, 3):
        complete(store, n, completed_ms=n * SLOT_MS * SLOTS)
        if n < 3:
            store.retire(keep=1)
    with monkeypatch.context() as failing:
        failing.setattr(LocalFolder, "remove", _keep_manifests)
        with pytest.raises(CheckpointError, match="read-only"):
            store.retire(keep=1)
    assert numbers(store.manifests()) == [1, 2, 3]
    store.retire(keep=1)
    assert numbers(store.manifests()) == [2, 3]


_remove = LocalFolder.remove


def _keep_manifests(self: LocalFolder, path: str) -> None:
    if "manifests" in path:
        raise CheckpointError(f"{path}: read-only")
    _remove(self, path)


def _fail(self: LocalFolder, path: str, content: bytes) -> None:
    raise CheckpointError(f"{path}: the disk is full")


@given(st.lists(st.integers(1, 400), min_size=1, max_size=300), st.integers(1, 3_000_000))
def test_bases_reach_back_for_the_whole_time_and_are_few(steps_ms: list[int], record_us: int) -> None:
    bases: list[RecordBase] = []
    now_ms = 1_700_000_000_000
    for number, step_ms in enumerate(steps_ms, 1):
        now_ms += step_ms
        bases = kept_bases(bases, (number, 1), Recorded(record_us, completed_ms=now_ms), NOT_MEASURED)
        begun_ms = now_ms - record_us // 1_000
        assert bases[0].checkpoint == 1 or bases[0].completed_ms <= begun_ms
        assert all(base.completed_ms > begun_ms for base in bases[1:])
        assert len(bases) <= max(SLOTS, min(record_us // 1_000, 2 * SLOTS)) + 2


def test_the_checkpoint_with_which_a_run_began_is_a_base_for_the_time() -> None:
    hour_ms, record_us = 3_600_000, 24 * 3_600_000_000
    resumed = (7, 1, 0)
    bases: list[RecordBase] = []
    for hour in range(1, 60):
        recorded = Recorded(record_us, completed_ms=hour * hour_ms, resumed=resumed)
        bases = kept_bases(bases, (7 + hour, 2), recorded, NOT_MEASURED)
        assert (RecordBase(*resumed) in bases) == (hour <= 24)


# ---- records with a size


def complete_of_a_size(store: SnapshotStore, checkpoint: int, completed_ms: int, record_bytes: int) -> Manifest:
    return complete(store, checkpoint, completed_ms, record_us=0, record_bytes=record_bytes)


def test_the_oldest_intervals_are_deleted_beyond_the_size(store: SnapshotStore) -> None:
    """Each checkpoint is a base here, since a quarter of an hour lies between two."""
    sizes = []
    for n in range(1, 4):
        complete_of_a_size(store, n, n * SLOT_OF_A_SIZE_MS, record_bytes=1 << 40)
        store.retire(keep=1)
        sizes.append(store.record_bytes())
    assert numbers(store.manifests()) == numbers(store.bases()) == [1, 2, 3]
    each = sizes[1] - sizes[0]
    assert each > 0
    done = []
    for n in range(4, 12):
        done.append(complete_of_a_size(store, n, n * SLOT_OF_A_SIZE_MS, record_bytes=4 * each))
        store.retire(keep=1)
        assert store.record_bytes() <= 4 * each
    assert len(store.bases()) >= 3
    assert numbers(store.manifests()) == numbers(store.bases())
    assert [found.checkpoint for found in done if has_state(store, found)] == numbers(store.bases())


def test_answers_count_as_part_of_the_record(store: SnapshotStore) -> None:
    names = []
    for n in range(1, 5):
        names.append(store.keep_answer(n, JOIN, 0, bytes([n]) * 100_000))
        complete_of_a_size(store, n, n, record_bytes=250_000)
        store.retire(keep=1)
    assert 100_000 <= store.record_bytes() <= 250_000
    assert numbers(store.bases()) == [3, 4], "each of them is more than a 96th of the size"
    assert store.kept_answer(names[2]) == bytes([3]) * 100_000
    with pytest.raises(CheckpointError, match="missing"):
        store.kept_answer(names[1])


def test_a_base_is_new_when_a_part_of_the_size_is_written(store: SnapshotStore) -> None:
    complete_of_a_size(store, 1, 1, record_bytes=1 << 40)
    store.retire(keep=1)
    start = store.record_bytes()
    complete_of_a_size(store, 2, 2, record_bytes=1 << 40)
    store.retire(keep=1)
    assert numbers(store.bases()) == [1]
    each = store.record_bytes() - start
    for n in range(3, 13):
        complete_of_a_size(store, n, n, record_bytes=int(SLOTS * each * 2.5))
        store.retire(keep=1)
    steps = {after - before for before, after in pairwise(numbers(store.bases())[1:])}
    assert steps == {3}, "two and a half times what a checkpoint writes"


def test_the_newest_base_is_kept_if_it_is_larger_than_the_size(store: SnapshotStore) -> None:
    for n in range(1, 4):
        complete_of_a_size(store, n, n, record_bytes=1)
        store.retire(keep=1)
    assert numbers(store.bases()) == numbers(store.manifests()) == [3]


def test_files_of_logs_are_deleted_one_by_one_beyond_the_size(tmp_path: Path) -> None:
    store = CheckpointStore(str(tmp_path), JOB)
    for n in range(1, 4):
        complete_of_a_size(store, n, n, record_bytes=1)
        store.retire(keep=1)
    assert [file.name[:12] for file in (Path(store.path) / "line/records/000000000").iterdir()] == ["000000000003"]


def test_another_coordinator_measures_what_it_finds(tmp_path: Path) -> None:
    store = CheckpointStore(str(tmp_path), JOB)
    for n in range(1, 5):
        complete_of_a_size(store, n, n * SLOT_OF_A_SIZE_MS, record_bytes=1 << 40)
        store.retire(keep=1)
    size = store.record_bytes()
    later = CheckpointStore(str(tmp_path), JOB)
    assert later.record_bytes() == size
    assert later.open_generation() == 2
    complete(later, 5, 5 * SLOT_OF_A_SIZE_MS, record_us=0, generation=2, record_bytes=size)
    later.retire(keep=1)
    assert 1 < later.bases()[0].checkpoint < 5
    assert later.record_bytes() <= size


@given(
    st.lists(st.tuples(st.integers(1, 2 * SLOT_OF_A_SIZE_MS), st.integers(0, 300)), min_size=1, max_size=200),
    st.integers(1, 20_000),
)
def test_a_record_has_its_size_and_begins_as_early_as_it_can(steps: list[tuple[int, int]], record_bytes: int) -> None:
    bases: list[RecordBase] = []
    written: list[int] = []
    now_ms = 0

    def grown(base: RecordBase) -> int:
        return sum(written[base.checkpoint :])

    def taken(found: Sequence[RecordBase]) -> list[int]:
        return [sum(written[base.checkpoint - 1 :]) for base in found]

    for number, (step_ms, size_bytes) in enumerate(steps, 1):
        now_ms += step_ms
        written.append(size_bytes)
        before = bases
        recorded = Recorded(0, completed_ms=now_ms, record_bytes=record_bytes)
        bases = kept_bases(before, (number, 1), recorded, RecordMeasures(grown, taken))
        dropped = before[: len(before) - len([base for base in bases if base in before])]
        assert before[len(dropped) :] == bases[: len(before) - len(dropped)], "only the oldest are dropped"
        assert len(bases) == 1 or taken(bases)[0] <= record_bytes + record_bytes // SLOTS + 300
        assert not dropped or taken(dropped)[-1] > record_bytes
        assert grown(bases[-1]) * SLOTS < record_bytes or bases[-1].checkpoint == number
