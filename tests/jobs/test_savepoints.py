"""Savepoints and their copies: a run that begins with a copy goes on as the job would have from that checkpoint."""

from __future__ import annotations

import shutil
from contextlib import chdir
from pathlib import Path

import pytest

from clonos_py.checkpoint.retention import needed_bytes
from clonos_py.checkpoint.storage import CheckpointStore
from clonos_py.cli.main import invoke
from clonos_py.connectors import read_results
from tests.jobs.half_way import SCRIPT, go_on, kept_job, save_half_way, stopped_half_way
from tests.jobs.in_process import run

JOB = kept_job('checkpoint_interval="20ms"')
ROWS, KEYS = 400, 7


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A folder with a job that was stopped half-way, with a savepoint."""
    stopped_half_way(tmp_path, JOB, files=3, rows=ROWS, keys=KEYS)
    save_half_way(str(tmp_path / "checkpoints"))
    return tmp_path


@pytest.mark.parametrize("parallelism", ["1", "3"])
def test_a_run_goes_on_from_a_copy_though_the_job_has_gone_on(here: Path, parallelism: str) -> None:
    """It has deleted the checkpoint of the savepoint meanwhile, but for its files."""
    with chdir(here):
        assert go_on().returncode == 0
        assert invoke(["savepoint", "copy", "kept", "half way", "trial", "--checkpoints", "checkpoints"]) == 0
        for kept in ("out", "totals"):
            shutil.rmtree(kept)
        shutil.copytree("saved/out", "out")
        shutil.rmtree("checkpoints")
        ended = run(Path(SCRIPT).resolve(), "--checkpoints", "trial", "--parallelism", parallelism)
        assert ended.returncode == 0, ended.stderr
        assert sorted(row["id"] for row in read_results("out")) == list(range(ROWS))
        totals = {row["key"]: row["total"] for row in read_results("totals")}
        assert totals == {key: len(range(key, ROWS, KEYS)) for key in range(KEYS)}


def test_savepoints_are_listed_and_deleted(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--checkpoints", str(here / "checkpoints")]
    assert invoke(["savepoint", "ls", "kept", *where]) == 0
    assert "half way" in capsys.readouterr().out
    assert invoke(["savepoint", "rm", "kept", "half way", *where]) == 0
    capsys.readouterr()
    assert invoke(["savepoint", "ls", "kept", *where]) == 0
    assert capsys.readouterr().out == f"'kept' has no savepoint in {here / 'checkpoints'}\n"


def test_what_is_not_there_or_in_the_way_is_named(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--checkpoints", str(here / "checkpoints")]
    assert invoke(["savepoint", "copy", "kept", "full way", str(here / "trial"), *where]) == 1
    assert "has no savepoint 'full way'; savepoints: 'half way'\n" in capsys.readouterr().err
    for words in (["ls", "nobody"], ["rm", "nobody", "half way"], ["copy", "nobody", "half way", "trial"]):
        assert invoke(["savepoint", *words, *where]) == 1
        error = capsys.readouterr().err
        assert error == f"error: there is no job 'nobody': {here / 'checkpoints'} has the jobs 'kept'\n"
    assert invoke(["savepoint", "copy", "kept", "half way", str(here / "checkpoints"), *where]) == 1
    assert "has checkpoints already: name another folder\n" in capsys.readouterr().err


def test_a_copy_needs_whole_files_and_can_be_repeated(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = CheckpointStore(str(here / "checkpoints"), "kept").savepoint("half way")
    needed = max(needed_bytes(saved.handles))
    last = here / "checkpoints" / "kept" / "line" / needed
    last.rename(here / "away")
    copied = ["savepoint", "copy", "kept", "half way", str(here / "trial"), "--checkpoints", str(here / "checkpoints")]
    assert invoke(copied) == 1
    error = capsys.readouterr().err
    assert (error.count("\n"), "is missing" in error) == (1, True)
    assert CheckpointStore(str(here / "trial"), "kept").latest() is None
    (here / "away").rename(last)
    broken_off = here / "trial" / "kept" / "line" / needed
    broken_off.parent.mkdir(parents=True, exist_ok=True)
    broken_off.write_bytes(b"the first half")
    assert invoke(copied) == 0
    copy = CheckpointStore(str(here / "trial"), "kept").latest()
    assert copy is not None
    assert copy.checkpoint == saved.checkpoint
