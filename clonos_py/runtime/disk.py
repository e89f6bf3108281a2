"""Snapshots and manifests in checkpoint storage, and what came of reading, writing and deleting them, as events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from clonos_py.checkpoint.frames import between
from clonos_py.checkpoint.storage import logs_in
from clonos_py.checkpoint.store import SnapshotStore
from clonos_py.job.events import CheckpointsRetired, ManifestFailed, ManifestWritten
from clonos_py.link.instructions import Loaded, LoadedFrames, LoadFailed, Persist, Persisted, PersistFailed
from clonos_py.model.errors import CheckpointError, one_line
from clonos_py.model.messages import Restore
from clonos_py.model.segments import LogSegment
from clonos_py.model.snapshots import Manifest, StoredChunk, StoredFrames
from clonos_py.model.state import Chunk


class Snapshots:
    """Those of one process in storage. A standby loads one after the other: chunks that the last one brought, ``known``
    by their location, are not read again."""

    def __init__(self, store: SnapshotStore) -> None:
        self._store = store
        self.known: Mapping[str, Chunk] = {}

    def load(self, restore: Restore) -> Loaded | LoadFailed:
        try:
            operators = {
                name: [self._store.read(handle, self.known) for handle in handles]
                for name, handles in restore.operators.items()
            }
            frames = self._frames(restore.frames)
            logs = self._logs(restore.logs)
        except CheckpointError as problem:
            return LoadFailed(restore, problem)
        states = [state for parts in operators.values() for state in parts]
        chunks = [chunk for state in states for table in state.tables.values() for chunk in table]
        self.known = {chunk.location: chunk for chunk in chunks if chunk.location is not None}
        return Loaded(restore, operators, frames, logs)

    def _logs(self, stored: StoredChunk | None) -> list[LogSegment]:
        return logs_in(self._store.read_chunks([stored])[stored.location]) if stored else []

    def _frames(self, stored: Mapping[int, Sequence[StoredFrames]]) -> LoadedFrames:
        runs = self._store.read_frames(part.location for parts in stored.values() for part in parts)
        return {output: [between(runs[part.location], part) for part in parts] for output, parts in stored.items()}

    def persist(self, wish: Persist) -> Persisted | PersistFailed:
        """It has no clock: the caller fills the time in. A task that persists loads nothing any
        more: what it does not need itself is let go."""
        self.known = {}
        try:
            return Persisted(self._store.write(wish.snapshot, wish.attempt), 0.0)
        except CheckpointError as problem:
            return PersistFailed(wish.snapshot.checkpoint, str(problem))
        except Exception as problem:  # noqa: BLE001 - the coordinator waits for the snapshot
            return PersistFailed(wish.snapshot.checkpoint, f"the snapshot of {wish.snapshot.task}: {_named(problem)}")


def write_manifest(manifest: Manifest, store: SnapshotStore) -> ManifestWritten | ManifestFailed:
    """Completes a checkpoint. Recoveries wait for it: whatever goes wrong, that is said."""
    try:
        store.write_manifest(manifest)
    except CheckpointError as problem:
        return ManifestFailed(manifest.checkpoint, str(problem))
    except Exception as problem:  # noqa: BLE001 - as the docstring says
        return ManifestFailed(
            manifest.checkpoint, f"the manifest of checkpoint {manifest.checkpoint}: {_named(problem)}"
        )
    return ManifestWritten(manifest.checkpoint)


def retire(store: SnapshotStore, keep: int = 2) -> CheckpointsRetired:
    """Deletes all but the ``keep`` newest checkpoints. What cannot be deleted is tried again with the next one."""
    try:
        store.retire(keep)
    except CheckpointError as problem:
        return CheckpointsRetired(str(problem))
    except Exception as problem:  # noqa: BLE001 - the newest checkpoint is complete all the same
        return CheckpointsRetired(_named(problem))
    return CheckpointsRetired()


def _named(problem: Exception) -> str:
    """An error that storage should not raise."""
    return f"{type(problem).__name__}: {one_line(problem)}"
