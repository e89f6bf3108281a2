"""Manifests of snapshots that tasks take alone: which are deltas, how they are read back, which are kept, and
damage."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from clonos_py.checkpoint.manifest import Base, ManifestDelta, NamedEpochs, checksum, decode_delta, encode, is_delta
from clonos_py.checkpoint.manifest_chain import DELTAS_MAX
from clonos_py.checkpoint.memory import MemoryStore
from clonos_py.checkpoint.storage import CheckpointStore
from clonos_py.checkpoint.store import SnapshotStore
from clonos_py.model.errors import CheckpointError
from clonos_py.model.ids import Attempt, TaskId
from clonos_py.model.snapshots import KeptEstimates, Manifest, TaskHandle, WeightedSum
from tests.unit.checkpoint.stores import JOB, chunk, rows_of, snapshot

TASKS = [TaskId("source", 0), TaskId("join", 0), TaskId("join", 1)]
ALL = range(len(TASKS))


class Line:
    """One checkpoint after the other, each with new snapshots of some tasks."""

    def __init__(self, store: SnapshotStore, start: int = 0) -> None:
        self.store, self._count = store, start
        self.generation = store.open_generation()
        self._handles: dict[TaskId, TaskHandle] = {}

    def go_on_from(self, manifest: Manifest | None) -> None:
        if manifest is not None:
            self._handles = {handle.task: handle for handle in manifest.tasks}

    def snapshot(self, task: int) -> TaskHandle:
        self._count += 1
        taken = snapshot(self._count, [chunk(self._count)], TASKS[task])
        return self.store.write(taken, Attempt(self.generation, 0))

    def checkpoint(self, tasks: Sequence[int]) -> Manifest:
        """Completes a checkpoint with new snapshots of these tasks, by their number."""
        self._handles |= {TASKS[task]: self.snapshot(task) for task in tasks}
        self._count += 1
        named = [self._handles[task] for task in TASKS]
        none = WeightedSum(0.5, 2)
        estimates = KeptEstimates(
            self._count, 0.1, 0, 0, 0, 0, 0, 0, TASKS[0], none, none, none, none, none, none, none
        )
        widths, operators = {"source": 1, "join": 2}, {"join": "join"}
        manifest = Manifest(JOB, self._count, self.generation, 128, widths, named, operators, estimates=estimates)
        self.store.write_manifest(manifest)
        return manifest


def check_readable(store: SnapshotStore, manifest: Manifest) -> None:
    for handle in manifest.handles:
        assert rows_of(store.read(handle.operators["join"])) == chunk(handle.checkpoint).rows.to_pylist()


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(str(tmp_path), JOB)


def files(store: CheckpointStore) -> list[Path]:
    """The files of the manifests, oldest first."""
    return sorted((Path(store.path) / "line" / "manifests").iterdir())


def deltas(store: CheckpointStore) -> list[bool]:
    """For each manifest, whether it is a delta."""
    return [is_delta(file.read_bytes()) for file in files(store)]


def test_a_manifest_with_new_snapshots_of_some_tasks_is_a_delta(store: CheckpointStore) -> None:
    line = Line(store)
    done = [line.checkpoint(tasks) for tasks in (ALL, [1], [0, 2], ALL, [2])]
    assert deltas(store) == [False, True, True, False, True]
    assert store.manifests() == done
    whole, delta, *_ = files(store)
    assert delta.stat().st_size < whole.stat().st_size / 2


def test_every_64th_manifest_is_whole(store: CheckpointStore) -> None:
    line = Line(store)
    line.checkpoint(ALL)
    newest = [line.checkpoint([n % 3]) for n in range(2 * DELTAS_MAX)][-1]
    assert [number for number, delta in enumerate(deltas(store)) if not delta] == [0, DELTAS_MAX + 1]
    assert DELTAS_MAX + 1 == 64
    assert CheckpointStore(os.path.dirname(store.path), JOB).latest() == newest


def test_the_first_manifest_of_a_generation_is_whole(store: CheckpointStore, tmp_path: Path) -> None:
    first = Line(store)
    done = [first.checkpoint(tasks) for tasks in (ALL, [1])]
    later = Line(CheckpointStore(str(tmp_path), JOB), start=100)
    later.go_on_from(done[-1])
    done += [later.checkpoint(tasks) for tasks in ([2], [0])]
    assert deltas(store) == [False, True, False, True]
    assert store.manifests() == done


def test_the_first_manifest_after_a_rollback_is_whole(store: CheckpointStore) -> None:
    line = Line(store)
    line.checkpoint(ALL)
    line.generation = store.open_generation(after=line.generation)
    newest = line.checkpoint([1])
    assert deltas(store) == [False, False]
    assert store.latest() == newest


def test_a_manifest_with_other_changes_than_snapshots_is_whole(store: CheckpointStore) -> None:
    """A delta contains snapshots only."""
    line = Line(store)
    first = line.checkpoint(ALL)
    others = [
        replace(first, checkpoint=50, code_digest="other"),
        replace(first, checkpoint=51, tasks=first.tasks[:2]),
        replace(first, checkpoint=52, tasks=first.tasks[::-1]),
    ]
    for other in others:
        store.write_manifest(other)
    assert deltas(store) == [False] * 4
    assert store.manifests() == [first, *others]


def test_a_delta_names_earlier_snapshots_by_their_epochs(store: CheckpointStore) -> None:
    line = Line(store)
    first = line.checkpoint(ALL)
    source, join, other = first.tasks
    second, third, later = line.snapshot(0), line.snapshot(0), line.snapshot(2)
    done = [
        replace(first, checkpoint=50, tasks=[second, join, other], earlier=[source]),
        replace(first, checkpoint=51, tasks=[third, join, later], earlier=[source, second, other]),
        replace(first, checkpoint=52, tasks=[third, join, later], earlier=[second, other]),
        replace(first, checkpoint=53, tasks=[second, join, later], earlier=[other]),
    ]
    for manifest in done:
        store.write_manifest(manifest)
    assert deltas(store) == [False, True, True, True, True]
    assert store.manifests() == [first, *done]
    found = [decode_delta(file.read_bytes(), JOB, "", mark(file)) for file in files(store)[1:]]
    assert [delta.handles for delta in found] == [[second], [third, later], [], []]
    store.retire(keep=1)
    check_readable(store, done[-1])


def mark(file: Path) -> tuple[int, int]:
    checkpoint, generation, _ = file.name.split(".")
    return int(checkpoint), int(generation)


def test_a_manifest_that_could_not_be_written_is_no_base(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = Line(store)
    line.checkpoint(ALL)
    with monkeypatch.context() as full:
        full.setattr(store._folder, "write", unwritable)
        with pytest.raises(CheckpointError, match="full"):
            store.write_manifest(replace(store.manifests()[0], checkpoint=5))
    newest = line.checkpoint([1])
    assert deltas(store) == [False, True]
    assert store.latest() == newest


def unwritable(path: str, content: bytes) -> None:
    raise CheckpointError("the folder is full")


# ---- retention


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_a_base_is_kept_as_long_as_a_kept_manifest_needs_it(store: CheckpointStore, keep: int) -> None:
    line = Line(store)
    done = []
    for number in range(40):
        done.append(line.checkpoint(ALL if number % 11 == 0 else [number % 3]))
        store.retire(keep)
        for manifest in done[-keep:]:
            assert manifest in store.manifests()
            check_readable(store, manifest)
    since_whole = 40 - 33
    assert len(files(store)) == max(since_whole, keep)
    assert len(list((Path(store.path) / "line" / "state").iterdir())) < 3 * (keep + 2)


def test_a_new_coordinator_keeps_the_base_of_the_manifest_it_resumes_from(
    store: CheckpointStore, tmp_path: Path
) -> None:
    line = Line(store)
    adopted = [line.checkpoint(tasks) for tasks in (ALL, [1], [2])][-1]
    later = CheckpointStore(str(tmp_path), JOB)
    next_line = Line(later, start=100)
    next_line.go_on_from(adopted)
    newest = next_line.checkpoint([0])
    later.retire(keep=2)
    assert len(files(later)) == 4
    assert later.manifests()[-2:] == [adopted, newest]
    next_line.checkpoint([1])
    later.retire(keep=2)
    assert len(files(later)) == 2, "no kept manifest continues one of the earlier generation"


@pytest.mark.parametrize("files_", [True, False])
def test_a_slow_task_keeps_no_files_of_other_tasks(files_: bool, tmp_path: Path) -> None:
    store: SnapshotStore = CheckpointStore(str(tmp_path), JOB) if files_ else MemoryStore(JOB)
    line = Line(store)
    line.checkpoint(ALL)
    answers = [store.keep_answer(epoch, TASKS[1], 0, b"%d" % epoch) for epoch in range(20)]
    slow = store.keep_answer(1, TASKS[0], 0, b"slow")
    newest = dead_at = line.checkpoint([1])
    for _ in range(3):
        newest = line.checkpoint([1])
        store.retire(keep=1)
    check_readable(store, newest)
    with pytest.raises(CheckpointError, match="missing"):
        store.read(dead_at.tasks[1].operators["join"])
    assert store.kept_answer(slow) == b"slow"
    for epoch, name in enumerate(answers):
        if epoch >= newest.tasks[1].checkpoint:
            assert store.kept_answer(name) == b"%d" % epoch
        else:
            with pytest.raises(CheckpointError, match="missing"):
                store.kept_answer(name)


CHECKPOINTS = st.lists(st.tuples(st.sets(st.sampled_from(list(ALL)), min_size=1), st.integers(0, 3)), max_size=25)


@settings(deadline=None)
@given(CHECKPOINTS, st.integers(1, 5))
def test_manifests_are_read_back_after_any_sequence_of_deletions_and_rollbacks(
    checkpoints: list[tuple[set[int], int]], deltas_max: int
) -> None:
    """0 to 2: so many manifests are kept afterwards, if any are deleted; 3: a rollback."""
    store = MemoryStore(JOB, deltas_max)
    line = Line(store)
    done = [line.checkpoint(ALL)]
    for tasks, then in checkpoints:
        done.append(line.checkpoint(sorted(tasks)))
        if then == 3:
            line.generation = store.open_generation()
        elif then:
            store.retire(keep=then)
        assert store.latest() == done[-1]
        check_readable(store, done[-1])


# ---- damage


def torn(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def emptied(file: Path) -> None:
    os.truncate(file, 0)


def altered(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-10] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize("damaged", [0, 1, 2, 3])
@pytest.mark.parametrize("damage", [Path.unlink, torn, emptied, altered])
def test_damage_to_a_delta_or_its_base_is_one_error_that_names_the_file(
    store: CheckpointStore, tmp_path: Path, damage: Callable[[Path], None], damaged: int
) -> None:
    line = Line(store)
    newest = [line.checkpoint(tasks) for tasks in (ALL, [1], [2], [0])][-1]
    store.open_generation()
    file = files(store)[damaged]
    content = file.read_bytes()
    damage(file)
    for use in (CheckpointStore.latest, CheckpointStore.open_generation, CheckpointStore.retire):
        with pytest.raises(CheckpointError) as raised:
            use(CheckpointStore(str(tmp_path), JOB))
        assert str(file) in str(raised.value) or damaged == 3, "for the newest one, its folder is named"
        assert "restore the file from a copy, or start over with --fresh" in str(raised.value)
    file.write_bytes(content)
    found = CheckpointStore(str(tmp_path), JOB)
    assert found.latest() == newest
    check_readable(found, newest)


def test_a_base_that_was_replaced_is_detected(store: CheckpointStore) -> None:
    """The base is undamaged, and of the right checkpoint."""
    line = Line(store)
    first, _ = [line.checkpoint(tasks) for tasks in (ALL, [1])]
    base, delta = files(store)
    base.write_bytes(encode(replace(first, code_digest="other")))
    with pytest.raises(CheckpointError, match=f"{base} is not the base of {delta}; restore the"):
        store.latest()


def test_a_manifest_under_the_name_of_another_is_refused(store: CheckpointStore) -> None:
    line = Line(store)
    for tasks in (ALL, [1], [2]):
        line.checkpoint(tasks)
    whole, _, newest = files(store)
    newest.write_bytes(whole.read_bytes())
    with pytest.raises(CheckpointError, match=f"{newest} is the manifest of checkpoint 4, generation 1; restore"):
        store.latest()


@pytest.mark.parametrize("base", [4, 6, 7])
def test_a_delta_without_its_base_is_an_error(store: CheckpointStore, base: int) -> None:
    line = Line(store)
    for tasks in (ALL, [1]):
        line.checkpoint(tasks)
    file = files(store)[-1]
    file.write_bytes(encode(ManifestDelta(JOB, 6, 1, Base(base, "0"), [], [])))
    with pytest.raises(CheckpointError, match=r"(has a base later|is not the base of).*--fresh"):
        store.latest()


def test_a_delta_that_names_an_unknown_snapshot_is_an_error(store: CheckpointStore) -> None:
    line = Line(store)
    for tasks in (ALL, [1]):
        line.checkpoint(tasks)
    whole, file = files(store)
    base = Base(mark(whole)[0], checksum(whole.read_bytes()))
    for epochs in ([77], []):
        file.write_bytes(encode(ManifestDelta(JOB, 6, 1, base, [NamedEpochs(TASKS[1], epochs)], [])))
        with pytest.raises(CheckpointError, match=r"checkpoint 6 names a snapshot that no file holds, .*--fresh"):
            store.latest()
