"""What only files can suffer: damage, a full or read-only folder, another version, another job, a crash half-way."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos_py.checkpoint import storage
from clonos_py.checkpoint.layout import Location, name_in_folder
from clonos_py.checkpoint.manifest import Generation, decode, encode, encode_generation
from clonos_py.checkpoint.storage import CheckpointStore
from clonos_py.model.errors import CheckpointError
from tests.disks import make_read_only
from tests.unit.checkpoint.stores import FIRST, JOB, chunk, complete, manifest, rows_of, snapshot


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


def test_large_snapshots_are_spread_over_files_of_bounded_size(
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
    with pytest.raises(CheckpointError, match=f"{file} is missing.*savepoint"):
        store.read(done.tasks[0].operators["join"])


def test_a_corrupt_newest_manifest_is_not_skipped(store: CheckpointStore) -> None:
    complete(store, 1, [chunk(0)])
    complete(store, 2, [chunk(4)])
    newest = files_below(store, "manifests")[-1]
    damage(newest)
    with pytest.raises(CheckpointError, match=f"{newest}.*corrupt.*--fresh"):
        store.latest()
    with pytest.raises(CheckpointError, match="corrupt"):
        store.open_generation()


def test_a_corrupt_manifest_can_be_archived_away(store: CheckpointStore) -> None:
    complete(store, 1, [chunk(0)])
    damage(files_below(store, "manifests")[0])
    assert store.archive() == f"{store.path}/archive/0001"
    assert store.latest() is None


def test_an_incomplete_manifest_is_as_if_it_were_not_there(store: CheckpointStore) -> None:
    complete(store, 1, [chunk(0)])
    complete_file = files_below(store, "manifests")[0]
    complete_file.with_name("000000000002.00000001.manifest.incomplete").write_bytes(b"clonos-man")
    latest = store.latest()
    assert latest is not None
    assert latest.checkpoint == 1


def test_incomplete_files_of_old_checkpoints_are_reclaimed(store: CheckpointStore) -> None:
    complete(store, 1, [chunk(0)])
    state = files_below(store, "state")[0].parent
    (state / "000000000001.join-0.1.0.9.chunks.incomplete").write_bytes(b"half")
    (state / "000000000003.join-0.1.0.9.chunks.incomplete").write_bytes(b"being written")
    complete(store, 2, [chunk(4)])
    store.retire(keep=1)
    assert [file.name[:12] for file in files_below(store, "state")] == ["000000000002", "000000000003"]


def test_files_that_are_not_ours_are_left_alone(store: CheckpointStore) -> None:
    complete(store, 1, [chunk(0)])
    foreign = files_below(store, "state")[0].with_name("README")
    foreign.write_text("hands off")
    complete(store, 2, [chunk(4)])
    store.retire(keep=1)
    assert foreign.read_text() == "hands off"


def test_a_manifest_of_another_format_version_is_refused(store: CheckpointStore) -> None:
    complete(store, 1, [chunk(0)])
    (file,) = files_below(store, "manifests")
    file.write_bytes(file.read_bytes().replace(b"clonos-manifest 1", b"clonos-manifest 2", 1))
    with pytest.raises(CheckpointError, match=f"{file} has format version 2.*reads 1"):
        store.latest()


def test_a_manifest_of_another_job_is_refused(store: CheckpointStore) -> None:
    complete(store, 1, [chunk(0)])
    (file,) = files_below(store, "manifests")
    file.write_bytes(encode(manifest(1, job="other")))
    with pytest.raises(CheckpointError, match=f"{file} belongs to job 'other'"):
        store.latest()
    with pytest.raises(CheckpointError, match="the manifest is of job 'other'"):
        store.write_manifest(manifest(2, job="other"))


def test_jobs_in_one_folder_do_not_see_each_other(tmp_path: Path) -> None:
    complete(CheckpointStore(str(tmp_path), JOB), 1, [chunk(0)])
    assert CheckpointStore(str(tmp_path), "hot").latest() is None


def test_what_a_replaced_coordinator_wrote_late_is_void(store: CheckpointStore) -> None:
    store.open_generation()
    complete(store, 1, [chunk(0)])
    zombies = complete(store, 2, [chunk(4)])
    generations = Path(store.path) / "generations"
    (generations / "00000002").write_bytes(encode_generation(Generation(2, adopted=1)))
    assert [m.checkpoint for m in store.manifests()] == [1]
    complete(store, 2, [chunk(8)], generation=2)
    assert store.latest() != zombies
    assert [(m.checkpoint, m.generation) for m in store.manifests()] == [(1, 1), (2, 2)]


def test_two_coordinators_never_get_the_same_generation(store: CheckpointStore, tmp_path: Path) -> None:
    other = CheckpointStore(str(tmp_path), JOB)
    numbers = [opened.open_generation() for opened in (store, other, store, other)]
    assert numbers == [1, 2, 3, 4]


def test_an_archived_line_stays_readable(store: CheckpointStore, tmp_path: Path) -> None:
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
    with pytest.raises(CheckpointError, match=f"{small_disk}.*is full.*intact"):
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
def test_any_name_is_one_component_of_a_path(name: str) -> None:
    component = name_in_folder(name)
    assert "/" not in component
    assert component not in (".", "..")


def test_different_names_lie_apart() -> None:
    names = ["a/b", "a b", "a%2Fb", ".a", "%2Ea", "..", "."]
    assert len({name_in_folder(name) for name in names}) == len(names)


@given(st.text(), st.integers(0), st.integers(0), st.integers(0, 2**64 - 1))
def test_a_location_is_its_text(file: str, offset: int, size_bytes: int, checksum: int) -> None:
    location = Location(file, offset, size_bytes, checksum)
    assert Location.parse(str(location)) == location


@given(st.binary(max_size=200))
def test_no_bytes_make_the_manifest_do_anything_but_raise_its_error(content: bytes) -> None:
    for candidate in (content, b"clonos-manifest 1 " + content, encode(manifest(1))[:-1] + b"\0" + content):
        with pytest.raises(CheckpointError):
            decode(candidate, JOB, "there")
