"""What a process of a world asks of disks: snapshots of the job's store, retained frames on its own shelf."""

from __future__ import annotations

from collections.abc import Iterator

from clonos_py.checkpoint.store import SnapshotStore
from clonos_py.model.errors import CheckpointError
from clonos_py.runtime.spill import FrameShelf, carry_out
from clonos_py.task.instructions import LinkEvent, Load, Loaded, LoadFailed, Persist, Persisted, PersistFailed, Spilling

DiskWork = Load | Persist | Spilling


def work(wish: DiskWork, store: SnapshotStore, shelf: FrameShelf) -> Iterator[LinkEvent]:
    """Carries a wish out and says what came of it."""
    match wish:
        case Load():
            yield _load(wish, store)
        case Persist():
            yield _persist(wish, store)
        case _:
            yield from carry_out(wish, shelf)


def _load(wish: Load, store: SnapshotStore) -> LinkEvent:
    try:
        operators = {name: [store.read(h) for h in handles] for name, handles in wish.restore.operators.items()}
    except CheckpointError as problem:
        return LoadFailed(wish.restore, problem)
    return Loaded(wish.restore, operators)


def _persist(wish: Persist, store: SnapshotStore) -> LinkEvent:
    try:
        return Persisted(store.write(wish.snapshot, wish.attempt), 0.0)
    except CheckpointError as problem:
        return PersistFailed(wish.snapshot.checkpoint, str(problem))
