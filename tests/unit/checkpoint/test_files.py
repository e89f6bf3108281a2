"""Problems of files alone: damage, a full or read-only folder, another version, another job, a crash midway."""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from clonos_py.checkpoint import storage
from clonos_py.checkpoint.folder import LocalFolder
from clonos_py.checkpoint.layout import Location, chunk_file_name, name_in_folder, record_file, record_origin
from clonos_py.checkpoint.manifest import Adoption, Generation, decode, encode, encode_generation
from clonos_py.checkpoint.storage import CheckpointStore
from clonos_py.model.errors import CheckpointError
from clonos_py.model.ids import Attempt, TaskId
from clonos_py.model.snapshots import OperatorHandle, StoredChunk
from tests.disks import make_read_only
from tests.unit.checkpoint.stores import (
    FIRST,
    JOB,
    JOIN,
    chunk,
    complete,
    manifest,
    piece,
    recorded,
    rows_of,
    segments,
    snapshot,
)


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(str(tmp_path), JOB)


def files_below(store: CheckpointStore, folder: str) -> list[Path]:
    return sorted((Path(store.path) / "line" / folder).iterdir())


def damage(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def test_another_process_resumes_from_the_same_folder(store: CheckpointStore, tmp_path: Path) -> None:
    complete(store, 1, [chunk(0)])
    resumed = CheckpointStore(f"file://{tmp_path}", JOB)
    latest = resumed.latest()
    assert latest is not None
    assert rows_of(resumed.read(latest.tasks[0].operators["join"])) == chunk(0).rows.to_pylist()


def test_large_snapshots_are_divided_into_files_of_bounded_size(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "FILE_BYTES", 4096)
    chunks = [chunk(n * 100, rows=100) for n in range(20)]
    handle = store.write(snapshot(1, chunks), FIRST)
    files = files_below(store, "state")
    assert 5 < len(files) < 20
    assert all(file.stat().st_size < 2 * 4096 for file in files)
    assert len(rows_of(store.read(handle.operators["join"]))) == 2000


def test_writing_the_same_checkpoint_twice_overwrites_nothing(store: CheckpointStore) -> None:
    first = store.write(snapshot(1, [chunk(0)]), FIRST)
    second = store.write(snapshot(1, [chunk(4)]), FIRST)
    assert rows_of(store.read(first.operators["join"])) == chunk(0).rows.to_pylist()
    assert rows_of(store.read(second.operators["join"])) == chunk(4).rows.to_pylist()


def test_a_corrupt_chunk_is_named(store: CheckpointStore) -> None:
    done = complete(store, 1, [chunk(0)])
    (file,) = files_below(store, "state")
    damage(file)
    with pytest.raises(CheckpointError, match=f"{file}.*corrupt.*--fresh"):
        store.read(done.tasks[0].operators["join"])


def test_a_truncated_chunk_file_is_named(store: CheckpointStore) -> None:
    done = complete(store, 1, [chunk(0)])
    (file,) = files_below(store, "state")
    os.truncate(file, 10)
    with pytest.raises(CheckpointError, match=f"{file}.*corrupt"):
        store.read(done.tasks[0].operators["join"])


def test_a_missing_chunk_file_is_named(store: CheckpointStore) -> None:
    done = complete(store, 1, [chunk(0)])
    (file,) = files_below(store, "state")
    file.unlink()
    with pytest.raises(CheckpointError, match=f"{file} is missing.*--fresh"):
        store.read(done.tasks[0].operators["join"])


def test_a_corrupt_answer_is_named(store: CheckpointStore) -> None:
    name = store.keep_answer(3, JOIN, 0, b"x" * 1_000)
    (file,) = files_below(store, "answers")
    damage(file)
    with pytest.raises(CheckpointError, match=f"{file} is corrupt: its checksum differs.*--fresh"):
        store.kept_answer(name)
    file.write_bytes(b"x" * 999)
    with pytest.raises(CheckpointError, match=f"{file} is corrupt"):
        store.kept_answer(name)


def test_a_corrupt_newest_manifest_is_not_skipped(store: CheckpointStore) -> None:
    complete(store, 1, [chunk(0)])
    complete(store, 2, [chunk(4)])
    newest = files_below(store, "manifests")[-1]
    damage(newest)
    with pytest.raises(CheckpointError, match=f"{newest}.*corrupt.*--fresh"):
        store.latest()
    with pytest.raises(CheckpointError, match="corrupt"):
        store.open_generation()


def test_a_corrupt_manifest_can_be_archived(store: CheckpointStore) -> None:
    complete(store, 1, [chunk(0)])
    damage(files_below(store, "manifests")[0])
    assert store.archive() == f"{store.path}/archive/0001"
    assert store.latest() is None


def test_an_incomplete_manifest_is_ignored(store: CheckpointStore) -> None:
    complete(store, 1, [chunk(0)])
    complete_file = files_below(store, "manifests")[0]
    complete_file.with_name("000000000002.00000001.manifest.incomplete").write_bytes(b"clonos-man")
    latest = store.latest()
    assert latest is not None
    assert latest.checkpoint == 1


def test_incomplete_files_of_old_checkpoints_are_deleted(store: CheckpointStore) -> None:
    complete(store, 1, [chunk(0)])
    state = files_below(store, "state")[0].parent
    (state / "000000000001.join-0.1.0.9.chunks.incomplete").write_bytes(b"half")
    (state / "000000000003.join-0.1.0.9.chunks.incomplete").write_bytes(b"being written")
    complete(store, 2, [chunk(4)])
    store.retire(keep=1)
    assert [file.name[:12] for file in files_below(store, "state")] == ["000000000002", "000000000003"]


def test_a_file_that_cannot_be_deleted_does_not_keep_others_and_is_tried_again(store: CheckpointStore) -> None:
    complete(store, 1, [chunk(0)])
    name = store.keep_answer(0, JOIN, 0, b"answer")
    (stuck,) = files_below(store, "manifests")
    content = stuck.read_bytes()
    stuck.unlink()
    (stuck / "below").mkdir(parents=True)
    complete(store, 2, [chunk(4)])
    with pytest.raises(CheckpointError, match=f"{stuck}: the checkpoint folder does not work"):
        store.retire(keep=1)
    assert [file.name[:12] for file in files_below(store, "state")] == ["000000000002"]
    assert files_below(store, "answers") == []
    assert name
    (stuck / "below").rmdir()
    stuck.rmdir()
    stuck.write_bytes(content)
    store.retire(keep=1)
    assert [file.name[:12] for file in files_below(store, "manifests")] == ["000000000002"]


def test_unknown_files_are_left_alone(store: CheckpointStore) -> None:
    complete(store, 1, [chunk(0)])
    foreign = files_below(store, "state")[0].with_name("README")
    foreign.write_text("hands off")
    complete(store, 2, [chunk(4)])
    store.retire(keep=1)
    assert foreign.read_text() == "hands off"


def test_a_manifest_of_another_format_version_is_refused(store: CheckpointStore) -> None:
    complete(store, 1, [chunk(0)])
    (file,) = files_below(store, "manifests")
    file.write_bytes(file.read_bytes().replace(b"clonos-manifest 7", b"clonos-manifest 3", 1))
    with pytest.raises(CheckpointError, match=f"{file} has format version 3.*reads 7"):
        store.latest()


def test_a_manifest_of_another_job_is_refused(store: CheckpointStore) -> None:
    complete(store, 1, [chunk(0)])
    (file,) = files_below(store, "manifests")
    file.write_bytes(encode(manifest(1, job="other")))
    with pytest.raises(CheckpointError, match=f"{file} belongs to job 'other'"):
        store.latest()
    with pytest.raises(CheckpointError, match="the manifest is of job 'other'"):
        store.write_manifest(manifest(2, job="other"))


def test_jobs_in_one_folder_are_separate(tmp_path: Path) -> None:
    complete(CheckpointStore(str(tmp_path), JOB), 1, [chunk(0)])
    assert CheckpointStore(str(tmp_path), "hot").latest() is None


def test_a_late_manifest_of_a_replaced_coordinator_is_void(store: CheckpointStore) -> None:
    store.open_generation()
    complete(store, 1, [chunk(0)])
    zombies = complete(store, 2, [chunk(4)])
    generations = Path(store.path) / "generations"
    (generations / "00000002").write_bytes(encode_generation(Generation(2)))
    (generations / "00000002.adopted").write_bytes(encode_generation(Adoption(2, adopted=1)))
    assert [m.checkpoint for m in store.manifests()] == [1]
    complete(store, 2, [chunk(8)], generation=2)
    assert store.latest() != zombies
    assert [(m.checkpoint, m.generation) for m in store.manifests()] == [(1, 1), (2, 2)]


@settings(max_examples=20)
@given(st.lists(st.sampled_from(["complete", "roll back", "replaced"]), max_size=12))
def test_whoever_has_written_superseded_manifests_they_are_deleted(steps: list[str]) -> None:
    """By another coordinator, or by this one before it rolled back."""
    with tempfile.TemporaryDirectory() as folder:
        store = CheckpointStore(folder, JOB)
        generation, checkpoint = store.open_generation(), 0
        for step in [*steps, "complete", "complete"]:
            if step == "complete":
                checkpoint += 1
                complete(store, checkpoint, [chunk(0)], generation)
                store.retire(keep=2)
            else:
                store = CheckpointStore(folder, JOB) if step == "replaced" else store
                generation = store.open_generation()
        assert [file.name[:12] for file in files_below(store, "manifests")] == [
            f"{kept:012d}" for kept in (checkpoint - 1, checkpoint)
        ]
        assert [file.name[:12] for file in files_below(store, "state")] == [
            f"{kept:012d}" for kept in (checkpoint - 1, checkpoint)
        ]


def test_two_coordinators_never_get_the_same_generation(store: CheckpointStore, tmp_path: Path) -> None:
    other = CheckpointStore(str(tmp_path), JOB)
    numbers = [opened.open_generation() for opened in (store, other, store, other)]
    assert numbers == [1, 2, 3, 4]


def generation_files(store: CheckpointStore) -> list[Path]:
    return sorted((Path(store.path) / "generations").iterdir())


@pytest.mark.timeout(300)
def test_every_flipped_bit_in_a_generation_file_is_detected(store: CheckpointStore, tmp_path: Path) -> None:
    store.open_generation()
    complete(store, 1, [chunk(0)])
    store.open_generation()
    for file in generation_files(store):
        good = file.read_bytes()
        for bit in range(8 * len(good)):
            bad = bytearray(good)
            bad[bit // 8] ^= 1 << bit % 8
            file.write_bytes(bad)
            for use in (CheckpointStore.latest, CheckpointStore.open_generation):
                with pytest.raises(CheckpointError, match=f"{file} (is corrupt|has format version)"):
                    use(CheckpointStore(str(tmp_path), JOB))
        file.write_bytes(good)
    assert CheckpointStore(str(tmp_path), JOB).open_generation() == 3


@pytest.mark.timeout(300)
def test_a_generation_file_under_the_name_of_another_is_refused(store: CheckpointStore, tmp_path: Path) -> None:
    for checkpoint in (1, 2):
        complete(store, checkpoint, [chunk(0)], generation=store.open_generation())
    for suffix in ("", ".adopted"):
        first, second = (Path(store.path) / "generations" / f"0000000{n}{suffix}" for n in (1, 2))
        good = second.read_bytes()
        second.write_bytes(first.read_bytes())
        with pytest.raises(CheckpointError, match=f"{second} is the file of generation 1; restore the file"):
            CheckpointStore(str(tmp_path), JOB).open_generation()
        second.write_bytes(good)


@pytest.mark.parametrize("missing", ["00000002", "00000003", "00000003.adopted"])
def test_a_missing_generation_is_named(store: CheckpointStore, tmp_path: Path, missing: str) -> None:
    for checkpoint in (1, 2, 3):
        complete(store, checkpoint, [chunk(0)], generation=store.open_generation())
    file = Path(store.path) / "generations" / missing
    file.unlink()
    with pytest.raises(CheckpointError, match=f"{file} is missing; restore the file"):
        CheckpointStore(str(tmp_path), JOB).open_generation()


def test_damaged_generations_are_archived_and_their_numbers_continue(store: CheckpointStore, tmp_path: Path) -> None:
    for checkpoint in (1, 2, 3):
        complete(store, checkpoint, [chunk(0)], generation=store.open_generation())
    damage(generation_files(store)[2])
    fresh = CheckpointStore(str(tmp_path), JOB)
    assert fresh.archive() == f"{store.path}/archive/0001"
    assert fresh.open_generation() > 3
    assert fresh.latest() is None
    with pytest.raises(CheckpointError, match="has taken over"):
        complete(store, 4, [chunk(0)], generation=3)


def test_a_missing_adopted_checkpoint_is_an_error(store: CheckpointStore, tmp_path: Path) -> None:
    for checkpoint in (1, 2):
        complete(store, checkpoint, [chunk(checkpoint)])
    store.open_generation()
    files_below(store, "manifests")[-1].unlink()
    with pytest.raises(CheckpointError, match="the manifest of checkpoint 2 is missing; restore the file"):
        CheckpointStore(str(tmp_path), JOB).latest()


def test_a_coordinator_that_is_replaced_while_it_writes_a_manifest_does_not_complete_it(
    store: CheckpointStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    complete(store, 1, [chunk(0)])
    late = store.write(snapshot(2, [chunk(4)]), FIRST)
    write = LocalFolder.write

    def slow(self: LocalFolder, path: str, content: bytes) -> None:
        if "manifests" in path:
            CheckpointStore(str(tmp_path), JOB).open_generation()
        write(self, path, content)

    monkeypatch.setattr(LocalFolder, "write", slow)
    with pytest.raises(CheckpointError, match="checkpoint 2 of job 'hot auctions' is refused: generation 2 has taken"):
        store.write_manifest(manifest(2, late))
    latest = store.latest()
    assert latest is not None
    assert latest.checkpoint == 1


STEPS_MAX = 40
"""More than opening a generation takes."""


@pytest.mark.parametrize("step", range(STEPS_MAX))
def test_a_manifest_that_its_coordinator_completed_is_adopted_by_the_next_one(
    store: CheckpointStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Whichever step the next one has just taken when it is written."""
    complete(store, 1, [chunk(0)])
    second = store.write(snapshot(2, [chunk(4)]), FIRST)
    steps = itertools.count()
    completed = [1]

    def stepping(method: Callable[..., Any]) -> Callable[..., Any]:
        def stepped(*arguments: Any) -> Any:
            if next(steps) == step:
                with monkeypatch.context() as unwatched, suppress(CheckpointError):
                    for name, original in METHODS.items():
                        unwatched.setattr(LocalFolder, name, original)
                    store.write_manifest(manifest(2, second))
                    completed.append(2)
            return method(*arguments)

        return stepped

    for name, method in METHODS.items():
        monkeypatch.setattr(LocalFolder, name, stepping(method))
    next_one = CheckpointStore(str(tmp_path), JOB)
    assert next_one.open_generation() == 2
    newest = next_one.latest()
    assert newest is not None
    assert newest.checkpoint == completed[-1]
    assert next(steps) < STEPS_MAX


METHODS = {name: getattr(LocalFolder, name) for name in ("names", "read", "write", "create")}


def test_archived_checkpoints_stay_readable(store: CheckpointStore, tmp_path: Path) -> None:
    done = complete(store, 1, [chunk(0)])
    archived = store.archive()
    complete(store, 1, [chunk(4)])
    assert archived is not None
    Path(store.path, "line").rename(tmp_path / "aside")
    Path(archived).rename(Path(store.path, "line"))
    assert store.latest() == done
    assert rows_of(store.read(done.tasks[0].operators["join"])) == chunk(0).rows.to_pylist()


def test_a_full_folder_is_an_error_and_the_last_checkpoint_stays_intact(small_disk: Path) -> None:
    store = CheckpointStore(str(small_disk), JOB)
    done = complete(store, 1, [chunk(0)])
    large = chunk(4, rows=200_000)
    with pytest.raises(CheckpointError, match=f"{small_disk}.*is full"):
        store.write(snapshot(2, [large]), FIRST)
    assert large.location is None
    assert store.latest() == done
    assert rows_of(store.read(done.tasks[0].operators["join"])) == chunk(0).rows.to_pylist()
    complete(store, 2, [chunk(8)])


def test_a_read_only_folder_is_an_error(small_disk: Path) -> None:
    store = CheckpointStore(str(small_disk), JOB)
    done = complete(store, 1, [chunk(0)])
    make_read_only(small_disk)
    with pytest.raises(CheckpointError, match=f"{small_disk}.*cannot be written"):
        store.write(snapshot(2, [chunk(4)]), FIRST)
    with pytest.raises(CheckpointError, match="cannot be written"):
        store.open_generation()
    assert store.latest() == done


def test_a_file_in_place_of_the_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(CheckpointError, match="taken"):
        CheckpointStore(str(tmp_path / "taken"), JOB).open_generation()


def test_an_unknown_kind_of_uri_is_an_error() -> None:
    with pytest.raises(CheckpointError, match="'nowhere://x' is no checkpoint folder"):
        CheckpointStore("nowhere://x", JOB)


@given(st.text(min_size=1, max_size=20))
def test_any_name_becomes_one_component_of_a_path(name: str) -> None:
    component = name_in_folder(name)
    assert "/" not in component
    assert component not in (".", "..")


def test_different_names_have_different_paths() -> None:
    names = ["a/b", "a b", "a%2Fb", ".a", "%2Ea", "..", "."]
    assert len({name_in_folder(name) for name in names}) == len(names)


@given(
    st.text(min_size=1), st.integers(0, 10**6), st.integers(0, 2**40), st.integers(0, 2**40), st.integers(0, 2**64 - 1)
)
def test_a_location_survives_its_text_form(
    vertex: str, checkpoint: int, offset: int, size_bytes: int, checksum: int
) -> None:
    file = f"state/{chunk_file_name(TaskId(vertex, 3), Attempt(1, 2), checkpoint, 4)}"
    location = Location(file, offset, size_bytes, checksum)
    assert Location.parse(str(location)) == location


@given(st.text(min_size=1), st.integers(0, 10**12 - 1))
def test_a_location_of_a_record_survives_its_text_form(vertex: str, checkpoint: int) -> None:
    file = record_file(TaskId(vertex, 3), Attempt(1, 2), checkpoint)
    location = Location(file, 0, 7, 9)
    assert Location.parse(str(location)) == location
    assert location.is_record
    origin = record_origin(file)
    assert origin is not None
    assert (origin.epoch, origin.writer) == (checkpoint, f"{name_in_folder(vertex)}-3")


def test_pieces_that_are_new_with_a_snapshot_share_one_file(store: CheckpointStore) -> None:
    handle = store.write(recorded(7_001, [piece(6_999, 0), piece(7_000, 3)]), FIRST)
    (bucket,) = files_below(store, "records")
    (file,) = bucket.iterdir()
    assert (bucket.name, file.name) == ("000000007", "000000007001.join-0.1.0.record")
    assert {Location.parse(stored.location).file for stored in handle.record} == {f"records/{bucket.name}/{file.name}"}
    assert handle.written_bytes == sum(stored.size_bytes for stored in handle.record)


def test_a_record_is_compressed(store: CheckpointStore) -> None:
    whole = piece(0, 0, 1_000)
    (stored,) = store.write(recorded(1, [whole]), FIRST).record
    assert stored.size_bytes < whole.rows.nbytes / 3


@pytest.mark.parametrize("harm", ["damage", "cut", "remove"])
def test_a_record_file_that_is_not_as_it_was_written_is_named(store: CheckpointStore, harm: str) -> None:
    handle = store.write(recorded(1, [piece(0, 0)]), FIRST)
    assert store.read_record(handle.record) == segments(0, 0)
    ((file,),) = [list(bucket.iterdir()) for bucket in files_below(store, "records")]
    match harm:
        case "damage":
            damage(file)
        case "cut":
            os.truncate(file, 10)
        case _:
            file.unlink()
    with pytest.raises(CheckpointError, match=f"{file} is (corrupt|missing)"):
        store.read_record(handle.record)


def test_a_record_that_holds_something_else_is_refused(store: CheckpointStore) -> None:
    handle = store.write(recorded(1, [chunk(0)]), FIRST)
    with pytest.raises(CheckpointError, match=r"records/.* holds no determinants"):
        store.read_record(handle.record)


@pytest.mark.parametrize("place", ["state", "record"])
def test_a_manifest_names_state_and_records_each_in_their_own_files(store: CheckpointStore, place: str) -> None:
    """Records are deleted with whole folders: nothing else may be among them."""
    stored = store.write(recorded(1, [piece(0, 0)]), FIRST)
    state = store.write(snapshot(1, [chunk(0)]), FIRST)
    if place == "record":
        forged = replace(stored, record=state.operators["join"].tables["rows"])
    else:
        forged = replace(state, operators={"join": OperatorHandle({"rows": stored.record}, b"")})
    with pytest.raises(CheckpointError, match=r"holds no (record|state): .* damaged"):
        decode(encode(manifest(1, forged)), JOB, "here")


@pytest.mark.parametrize(
    "location",
    [
        "records/000000007/000000007001.join-0.1.0.chunks#0+10:0000000000000000",
        "records/000000007/000000008001.join-0.1.0.record#0+10:0000000000000000",
        "records/000000007/../000000007001.join-0.1.0.record#0+10:0000000000000000",
        "records/000000007001.join-0.1.0.record#0+10:0000000000000000",
        "state/000000007001.join-0.1.0.record#0+10:0000000000000000",
        "../../../etc/passwd#0+10:0000000000000000",
        "state/../../other/state/000000000001.join-0.1.0.1.chunks#0+10:0000000000000000",
        "state/000000000001.join-0.1.0.1.chunks#-5+10:0000000000000000",
        "state/000000000001.join-0.1.0.1.chunks#0+-1:0000000000000000",
        "/state/000000000001.join-0.1.0.1.chunks#0+10:0000000000000000",
        "manifests/000000000001.00000001.manifest#0+10:0000000000000000",
        "state/000000000001.join-0.1.0.1.chunks#0+1_0:0000000000000000",
        "",
    ],
)
def test_a_manifest_cannot_name_a_file_outside_the_folder_of_chunks(store: CheckpointStore, location: str) -> None:
    done = complete(store, 1, [chunk(0)])
    handle = OperatorHandle({"rows": [StoredChunk(location, 4, 10, 0)]}, b"\x80")
    led = replace(done, tasks=[replace(done.tasks[0], operators={"join": handle})])
    (file,) = files_below(store, "manifests")
    file.write_bytes(encode(led))
    with pytest.raises(CheckpointError, match=f"{file}: .* is no location of a chunk: .*; restore the file"):
        store.latest()
    with pytest.raises(CheckpointError, match="is no location of a chunk"):
        store.read(handle)


def test_values_that_cannot_be_decoded_are_an_error(store: CheckpointStore) -> None:
    with pytest.raises(CheckpointError, match="values of a snapshot cannot be decoded"):
        store.read(OperatorHandle({}, b"\xc1"))


def test_a_manifest_under_the_name_of_another_is_refused(store: CheckpointStore) -> None:
    for checkpoint in (1, 2):
        complete(store, checkpoint, [chunk(checkpoint)])
    older, newest = files_below(store, "manifests")
    newest.write_bytes(older.read_bytes())
    with pytest.raises(CheckpointError, match=f"{newest} is the manifest of checkpoint 1, generation 1; restore"):
        store.latest()


def test_a_checkpoint_is_not_completed_without_the_chunks_of_earlier_ones(store: CheckpointStore) -> None:
    lasting = chunk(0)
    first = complete(store, 1, [lasting])
    (file,) = files_below(store, "state")
    content = file.read_bytes()

    def replaced_by_a_fifo() -> None:
        file.unlink()
        os.mkfifo(file)

    damages: list[tuple[Callable[[], Any], str]] = [
        (file.unlink, f"{file} is missing, which the next checkpoint needs, too; put the file back and resume"),
        (
            lambda: file.write_bytes(content[:-1]),
            f"{file} has {len(content) - 1} bytes, the next .* needs {len(content)}",
        ),
        (replaced_by_a_fifo, f"{file} is missing"),
    ]
    for checkpoint, (damaged, message) in enumerate(damages, 2):
        damaged()
        with pytest.raises(CheckpointError, match=message):
            complete(store, checkpoint, [lasting, chunk(4)])
        assert store.latest() == first
    file.unlink()
    file.write_bytes(content)
    complete(store, 5, [lasting, chunk(4)])


@given(st.binary(max_size=200))
def test_any_bytes_as_a_manifest_raise_a_checkpoint_error(content: bytes) -> None:
    for candidate in (content, b"clonos-manifest 3 " + content, encode(manifest(1))[:-1] + b"\0" + content):
        with pytest.raises(CheckpointError):
            decode(candidate, JOB, "there")
