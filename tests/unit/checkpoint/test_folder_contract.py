"""The contract of folders, for the one on a disk and the one in an object store, here in memory; for the one on a
server see ``tests/storage``."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from obstore.store import MemoryStore

from clonos_py.checkpoint.folder import Folder, LocalFolder
from clonos_py.checkpoint.object_folder import ObjectFolder
from clonos_py.object_store.client import ObjectClient
from tests.folder_contract import CASES, RACERS, STEPS, Step, compare, races

KINDS = ("disk", "objects")


def opened(kind: str, path: Path, times: int) -> list[Folder]:
    if kind == "disk":
        return [LocalFolder(str(path)) for _ in range(times)]
    store = MemoryStore()
    return [ObjectFolder(ObjectClient(store, "memory:///"), ["jobs", "hot"]) for _ in range(times)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_contract(case: Callable[[Folder], None], kind: str, tmp_path: Path) -> None:
    case(opened(kind, tmp_path, 1)[0])


@pytest.mark.parametrize("kind", KINDS)
@given(steps=STEPS)
def test_a_folder_is_a_dict_of_files(kind: str, steps: Sequence[Step]) -> None:
    with tempfile.TemporaryDirectory() as path:
        compare(opened(kind, Path(path), 1)[0], steps)


@pytest.mark.parametrize("kind", KINDS)
def test_each_race_has_one_winner(kind: str, tmp_path: Path) -> None:
    assert races(opened(kind, tmp_path, RACERS), 100) == [1] * 100
