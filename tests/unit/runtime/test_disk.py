"""Requests of the coordinator to storage, and their results."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from unittest.mock import ANY
from weakref import WeakValueDictionary

import obstore.store
import pytest

from clonos_py.causal.gate import Keeper
from clonos_py.checkpoint.layout import FileOrigin, origin
from clonos_py.checkpoint.memory import MemoryStore
from clonos_py.checkpoint.object_folder import ObjectFolder
from clonos_py.checkpoint.storage import CheckpointStore
from clonos_py.checkpoint.store import SnapshotStore
from clonos_py.connectors.http import HttpxClient
from clonos_py.job.events import CheckpointsRetired, JobEvent, ManifestFailed, ManifestWritten
from clonos_py.link.instructions import Loaded, Persist, Persisted, PersistFailed
from clonos_py.model.messages import Restore
from clonos_py.model.state import Chunk
from clonos_py.object_store.client import ObjectClient
from clonos_py.runtime.disk import Snapshots
from clonos_py.runtime.local.run import local_environment
from clonos_py.runtime.manifests import retire, write_manifest
from clonos_py.runtime.operator_environment import LiveEnvironment
from clonos_py.runtime.sim.harsh_environment import HarshEnvironment
from clonos_py.runtime.sim.run import SimulatedEnvironment
from clonos_py.services.registry import ServiceRegistry
from tests.unit.checkpoint.stores import FIRST, JOB, JOIN, chunk, manifest, snapshot

PLANNED = "planned failure of {}; nothing was changed"


def test_a_checkpoint_is_complete_although_old_ones_cannot_be_deleted() -> None:
    store = MemoryStore(JOB)
    store.open_generation()
    store.fail_next("retire")
    events: list[JobEvent] = []
    for checkpoint in (1, 2, 3):
        done = manifest(checkpoint, store.write(snapshot(checkpoint, [chunk(checkpoint)]), FIRST))
        events += [write_manifest(done, store), retire(store, keep=1)]
    assert events[:2] == [ManifestWritten(1), CheckpointsRetired(PLANNED.format("retire"))]
    assert events[2:] == [ManifestWritten(2), CheckpointsRetired(), ManifestWritten(3), CheckpointsRetired()]
    assert [kept.checkpoint for kept in store.manifests()] == [3]


def test_a_manifest_that_cannot_be_written_completes_no_checkpoint() -> None:
    store = MemoryStore(JOB)
    store.fail_next("write_manifest")
    assert write_manifest(manifest(1), store) == ManifestFailed(1, PLANNED.format("write_manifest"))


def test_what_gets_no_answer_may_be_asked_again() -> None:
    store, taken = MemoryStore(JOB), snapshot(1, [chunk(0)])
    store.be_silent(3)
    assert Snapshots(store).persist(Persist(taken, FIRST)) == PersistFailed(1, ANY, unavailable=True)
    assert write_manifest(manifest(1), store) == ManifestFailed(1, ANY, unavailable=True)
    assert retire(store) == CheckpointsRetired(ANY)
    store.open_generation()
    persisted = Snapshots(store).persist(Persist(taken, FIRST))
    assert isinstance(persisted, Persisted)
    done = manifest(1, persisted.handle)
    store.be_silent_after_manifest(0)
    assert write_manifest(done, store) == ManifestFailed(1, ANY, unavailable=True)
    assert store.latest() == done, "only the answer was lost"
    assert write_manifest(done, store) == ManifestWritten(1)


ENVIRONMENTS: dict[str, Callable[[SnapshotStore], Keeper]] = {
    "local": lambda store: local_environment(store)(JOIN),
    "ray": lambda store: LiveEnvironment(ServiceRegistry({}, HttpxClient), lambda: store, JOIN, 3),
    "sim": lambda store: SimulatedEnvironment(lambda: 0, random.Random(0), store, JOIN),
    "generated runs": lambda store: HarshEnvironment(lambda: 0, random.Random(0), store, JOIN),
}


def test_a_snapshot_counts_the_requests_since_the_one_before() -> None:
    """Also those of snapshots that failed."""
    store, folder = (
        CheckpointStore("memory", JOB),
        ObjectFolder(ObjectClient(obstore.store.MemoryStore(), "memory:///")),
    )
    store._folder = folder
    snapshots, counted = Snapshots(store), []
    for checkpoint in (1, 2):
        folder.requests["get"] += 3
        persisted = snapshots.persist(Persist(snapshot(checkpoint, [chunk(checkpoint)]), FIRST))
        assert isinstance(persisted, Persisted)
        counted.append(persisted.requests)
    assert counted == [{"get": 3, "put": 1}] * 2


@pytest.mark.parametrize("driver", ENVIRONMENTS)
def test_a_task_asks_for_an_answer_until_storage_has_one(driver: str) -> None:
    store = MemoryStore(JOB)
    environment = ENVIRONMENTS[driver](store)
    store.be_silent(5)
    name = environment.keep(1, b"answer")
    store.be_silent(5)
    assert environment.kept(name) == b"answer"


@pytest.mark.parametrize("driver", ENVIRONMENTS)
def test_every_driver_files_an_answer_under_the_given_epoch(driver: str, tmp_path: Path) -> None:
    environment = ENVIRONMENTS[driver](CheckpointStore(str(tmp_path), JOB))
    names = {epoch: environment.keep(epoch, b"answer") for epoch in (0, 3, 7)}
    assert [origin(name) for name in names.values()] == [FileOrigin(epoch, "join-0") for epoch in names]
    assert [environment.kept(name) for name in names.values()] == [b"answer"] * 3


def test_a_standby_takes_the_chunks_of_its_host_process_and_reads_the_others(tmp_path: Path) -> None:
    store, shared = CheckpointStore(str(tmp_path), JOB), WeakValueDictionary[str, Chunk]()
    held, dropped = chunk(1), chunk(2)
    persisted = Snapshots(store, shared).persist(Persist(snapshot(1, [held, dropped]), FIRST))
    assert isinstance(persisted, Persisted)
    restore = Restore(1, {name: [handle] for name, handle in persisted.handle.operators.items()})
    loaded = Snapshots(store, shared).load(restore)
    assert _chunks(loaded)[0] is held
    assert _chunks(loaded)[1] is dropped
    rows = dropped.rows
    del dropped, loaded
    loaded = Snapshots(store, shared).load(restore)
    assert _chunks(loaded)[0] is held
    assert _chunks(loaded)[1].rows is not rows
    assert _chunks(loaded)[1].rows == rows


def _chunks(loaded: object) -> Sequence[Chunk]:
    assert isinstance(loaded, Loaded)
    return loaded.operators["join"][0].tables["rows"]
