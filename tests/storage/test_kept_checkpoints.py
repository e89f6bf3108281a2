"""Checkpoints of earlier versions, kept in the repository: runs go on from them.

``checkpoints-N`` has the job of ``kept/job.py`` after some 500 rows of each source, in format N. When the format
changes, the folders of formats that are no longer read go, and one of the new format comes.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from clonos_py.checkpoint.manifest import FORMAT_VERSION
from clonos_py.checkpoint.storage import CheckpointStore
from clonos_py.connectors import read_results
from clonos_py.stored_state.reading import read_state
from tests.storage.kept.job import expected, job

KEPT = Path(__file__).parent / "kept"
FOLDERS = sorted(KEPT.glob("checkpoints-*"))


def test_the_present_format_is_kept() -> None:
    assert KEPT / f"checkpoints-{FORMAT_VERSION}" in FOLDERS


@pytest.mark.parametrize("parallelism", [2, 1])
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_run_goes_on_from_a_checkpoint_of_an_earlier_version(tmp_path: Path, folder: Path, parallelism: int) -> None:
    """At the parallelism of the checkpoint, and at another one."""
    checkpoints = tmp_path / "checkpoints"
    shutil.copytree(folder, checkpoints)
    (tmp_path / "unpaced").touch()
    job(str(tmp_path), str(tmp_path / "unpaced")).run(
        runtime="local", parallelism=parallelism, checkpoints=str(checkpoints)
    )
    for sink, rows in expected().items():
        assert sorted(tuple(row.values()) for row in read_results(str(tmp_path / sink))) == rows, sink
    last = CheckpointStore(str(checkpoints), "kept").latest()
    assert last is not None
    assert last.checkpoint > 1


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_the_state_of_an_earlier_version_is_shown(folder: Path) -> None:
    state = read_state(folder, "kept")
    keeping = {"totals", "windows", "sessions", "best", "ranks", "sums", "pairs"}
    assert keeping <= set(state.operators)
    assert all(table.num_rows for operator in keeping for table in state.tables(operator).values() if table.num_columns)
