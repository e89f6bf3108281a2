"""Two interrupted jobs for all tests of this folder; each damages a copy of what one has left."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.storage import alone, written


@pytest.fixture(scope="session")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """What the job left. Not to be changed."""
    folder = tmp_path_factory.mktemp("storage") / "interrupted"
    with pytest.MonkeyPatch.context() as patch:
        written.write(folder, patch)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def left(interrupted: Path) -> Iterator[Path]:
    """A copy, beside the same input."""
    copy = interrupted.with_name("copy")
    shutil.copytree(interrupted, copy)
    yield copy
    shutil.rmtree(copy)


@pytest.fixture(scope="session")
def interrupted_alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the job left whose tasks take snapshots alone. Not to be changed."""
    folder = tmp_path_factory.mktemp("storage-alone") / "interrupted"
    with pytest.MonkeyPatch.context() as patch:
        alone.write(folder, patch)
    return folder


@pytest.fixture
def left_alone(interrupted_alone: Path) -> Iterator[Path]:
    """A copy, beside the same input."""
    copy = interrupted_alone.with_name("copy")
    shutil.copytree(interrupted_alone, copy)
    yield copy
    shutil.rmtree(copy)
