"""Writes manifests to checkpoint storage and deletes old checkpoints, for the coordinator, and returns the results as
events."""

from __future__ import annotations

import msgspec

from clonos_py.checkpoint.store import SnapshotStore
from clonos_py.job.events import CheckpointsRetired, ManifestFailed, ManifestWritten
from clonos_py.model.errors import CheckpointError, StorageUnavailableError, one_line, type_and_text
from clonos_py.model.snapshots import Manifest


def dated(manifest: Manifest, now_us: int) -> Manifest:
    """A manifest that is to be written now, with the time of day if the job records. ``now_us``: microseconds UTC."""
    if manifest.recorded is None:
        return manifest
    return msgspec.structs.replace(
        manifest, recorded=msgspec.structs.replace(manifest.recorded, completed_ms=now_us // 1_000)
    )


def write_manifest(manifest: Manifest, store: SnapshotStore) -> ManifestWritten | ManifestFailed:
    """Completes a checkpoint. Recoveries wait for the result, so every error is returned as ManifestFailed."""
    try:
        store.write_manifest(manifest)
    except CheckpointError as problem:
        return ManifestFailed(manifest.checkpoint, str(problem), isinstance(problem, StorageUnavailableError))
    except Exception as problem:  # noqa: BLE001 - as the docstring says
        return ManifestFailed(
            manifest.checkpoint, f"the manifest of checkpoint {manifest.checkpoint}: {one_line(type_and_text(problem))}"
        )
    return ManifestWritten(manifest.checkpoint, dict(store.requests))


def retire(store: SnapshotStore, keep: int = 2) -> CheckpointsRetired:
    """Deletes all but the ``keep`` newest checkpoints. The next call tries again what could not be deleted."""
    try:
        store.retire(keep)
    except CheckpointError as problem:
        return CheckpointsRetired(str(problem))
    except Exception as problem:  # noqa: BLE001 - the newest checkpoint is complete all the same
        return CheckpointsRetired(one_line(type_and_text(problem)))
    return CheckpointsRetired()
