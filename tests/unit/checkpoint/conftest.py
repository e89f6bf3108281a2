from pathlib import Path

import pytest

from clonos_py.checkpoint.memory import MemoryStore
from clonos_py.checkpoint.storage import CheckpointStore
from clonos_py.checkpoint.store import SnapshotStore
from tests.disks import small_disk
from tests.unit.checkpoint.stores import JOB

__all__ = ["small_disk"]


@pytest.fixture(params=["files", "memory", "remote"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> SnapshotStore:
    """Each kind of store, which behave alike."""
    match request.param:
        case "files":
            return CheckpointStore(str(tmp_path), JOB)
        case "memory":
            return MemoryStore(JOB)
        case _:
            return CheckpointStore("mock:///checkpoints", JOB)
