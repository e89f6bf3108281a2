"""Two interrupted jobs for all tests of this folder; each test damages a copy of the files of one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from clonos_py.runtime.local.storage_thread import StorageThread
from tests.storage import alone, written


@contextmanager
def copied(folder: Path) -> Iterator[Path]:
    """A copy of the files of a job, beside the same input."""
    copy = folder.with_name("copy")
    shutil.copytree(folder, copy)
    yield copy
    shutil.rmtree(copy)


@contextmanager
def written_at_once() -> Iterator[pytest.MonkeyPatch]:
    """Storage and sinks work in the thread of the tasks: what lies on disk when the process dies is certain, and what
    tasks do behind the last write is not among it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StorageThread, "do", lambda thread, work: thread._post(work()))
        yield patch


@pytest.fixture(scope="session")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The files of the job. Not to be changed."""
    folder = tmp_path_factory.mktemp("storage") / "interrupted"
    with written_at_once() as patch:
        written.write(folder, patch)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def left(interrupted: Path) -> Iterator[Path]:
    with copied(interrupted) as copy:
        yield copy


@pytest.fixture(scope="session")
def interrupted_alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the job whose tasks take snapshots alone. Not to be changed."""
    folder = tmp_path_factory.mktemp("storage-alone") / "interrupted"
    with written_at_once() as patch:
        alone.write(folder, patch)
    return folder


@pytest.fixture
def left_alone(interrupted_alone: Path) -> Iterator[Path]:
    with copied(interrupted_alone) as copy:
        yield copy
