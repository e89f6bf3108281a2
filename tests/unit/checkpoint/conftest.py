from pathlib import Path

import obstore.store
import pytest

from clonos_py.checkpoint import storage
from clonos_py.checkpoint.memory import MemoryStore
from clonos_py.checkpoint.object_folder import ObjectFolder
from clonos_py.checkpoint.storage import CheckpointStore
from clonos_py.checkpoint.store import SnapshotStore
from clonos_py.object_store.client import ObjectClient
from tests.disks import small_disk
from tests.unit.checkpoint.stores import JOB

__all__ = ["small_disk"]


@pytest.fixture(params=["files", "memory", "objects"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SnapshotStore:
    """Each kind of store, which behave alike."""
    match request.param:
        case "files":
            return CheckpointStore(str(tmp_path), JOB)
        case "memory":
            return MemoryStore(JOB)
        case _:
            objects = obstore.store.MemoryStore()
            monkeypatch.setattr(
                storage, "open_folder", lambda uri, *below, read_soon: ObjectFolder(ObjectClient(objects, uri), below)
            )
            return CheckpointStore("s3://bucket/checkpoints", JOB)
