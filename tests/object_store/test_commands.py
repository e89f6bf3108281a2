"""Commands with checkpoints in an object store, and what they say when it cannot be used."""

from __future__ import annotations

import shutil
from contextlib import chdir
from pathlib import Path

import pytest

from clonos_py.checkpoint.storage import CheckpointStore
from clonos_py.checkpoint.stored_runs import RunEnd, StoredRuns
from clonos_py.cli.main import invoke
from clonos_py.connectors import read_results
from clonos_py.model.coordinator_events import CheckpointCompleted
from clonos_py.model.errors import CheckpointError, error_line
from clonos_py.observe.events import Event
from tests.jobs.half_way import SCRIPT, kept_job, save_half_way, some_results, write
from tests.jobs.in_process import loaded_once, run, run_heard, run_until
from tests.observed import without_warnings
from tests.s3_server import BUCKET, FULL, QUOTA, Refusal, S3Server

JOB = kept_job('checkpoint_interval="50ms", record="1h"')
ROWS, KEYS = 400, 7


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A folder with the job, which is slow, and its input."""
    write(tmp_path, JOB, files=3, rows=ROWS, keys=KEYS)
    return tmp_path


@pytest.fixture
def half_way(here: Path, uri: str) -> Path:
    """A folder with the job, stopped half-way, with a savepoint."""
    with chdir(here):
        run_until(some_results, here / SCRIPT, checkpoints=uri)
        (here / "slow").unlink()
    save_half_way(uri)
    return here


def ends(folder: Path) -> dict[int, int]:
    return {row["key"]: row["total"] for row in read_results(str(folder / "totals"))}


def check(folder: Path) -> None:
    assert sorted(row["id"] for row in read_results(str(folder / "out"))) == list(range(ROWS))
    assert ends(folder) == {key: len(range(key, ROWS, KEYS)) for key in range(KEYS)}


def test_state_records_and_replays_are_read_from_a_store(
    half_way: Path, uri: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(*command: str) -> str:
        capsys.readouterr()
        assert invoke([*command, "--checkpoints", uri]) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    with chdir(half_way), loaded_once(half_way / SCRIPT):
        assert "totals" in said("state", "ls")
        assert "total" in said("state", "show", "totals")
        assert "rows" in said("record", "ls", SCRIPT)
        assert "half way" in said("savepoint", "ls", "kept")
        said("replay", SCRIPT)
        said("savepoint", "rm", "kept", "half way")
        assert said("savepoint", "ls", "kept") == f"'kept' has no savepoint in {uri}\n"


@pytest.mark.parametrize("there", [True, False], ids=["into the store", "to a disk"])
def test_a_run_goes_on_from_a_copy_of_a_savepoint(half_way: Path, uri: str, there: bool) -> None:
    trial = f"{uri}-trial" if there else "trial"
    with chdir(half_way):
        assert invoke(["savepoint", "copy", "kept", "half way", trial, "--checkpoints", uri]) == 0
        ended = run(Path(SCRIPT).resolve(), "--checkpoints", trial)
        assert ended.returncode == 0, ended.stderr
        check(half_way)


def test_a_fresh_start_moves_what_is_there_aside(half_way: Path, uri: str) -> None:
    before = CheckpointStore(uri, "kept").latest()
    with chdir(half_way):
        for kept in ("out", "totals"):
            shutil.rmtree(kept, ignore_errors=True)
        ended = run(Path(SCRIPT).resolve(), "--checkpoints", uri, "--fresh")
        assert ended.returncode == 0, ended.stderr
        check(half_way)
    assert before is not None
    assert CheckpointStore(uri, "kept").savepoints() == {}


def test_a_detached_run_is_stored_with_its_checkpoints(uri: str) -> None:
    runs = StoredRuns(uri, "kept")
    names = [runs.write(at_ms, b"%d" % at_ms) for at_ms in range(12)]
    assert runs.names() == names[2:], "few are kept"
    assert runs.read(runs.newest()) == b"11"
    runs.end(names[-1], RunEnd(stopped=True))
    assert [StoredRuns(uri, "kept").ended(name) for name in names[-2:]] == [None, RunEnd(stopped=True)]


REFUSED: dict[str, tuple[Refusal | None, str]] = {
    "credentials": (None, "access is refused (status 403, InvalidAccessKeyId"),
    "full": (FULL, "the store is full (status 507, XMinioStorageFull"),
}


@pytest.mark.parametrize("wrong", REFUSED)
def test_a_run_that_cannot_use_its_store_ends_with_one_line_and_loses_nothing(
    wrong: str, half_way: Path, uri: str, s3: S3Server, impatient: None
) -> None:
    before = CheckpointStore(uri, "kept").latest()
    s3.refusal, reason = REFUSED[wrong]
    s3.refused = frozenset({"PUT"})
    s3.ask_for_credentials(s3.refusal is None)
    with chdir(half_way):
        try:
            ended = run(Path(SCRIPT).resolve(), "--checkpoints", uri)
        finally:
            s3.ask_for_credentials(False)
        assert ended.returncode == 1
        (line,) = without_warnings(ended.stderr)
        assert line.startswith(f"error: {uri}/kept/")
        assert reason in line
        s3.heal()
        assert CheckpointStore(uri, "kept").latest() == before
        assert run(Path(SCRIPT).resolve(), "--checkpoints", uri).returncode == 0
        check(half_way)


@pytest.mark.parametrize("command", [["run", SCRIPT], ["state", "ls"], ["record", "ls"], ["savepoint", "ls", "kept"]])
def test_each_command_names_a_missing_bucket(
    command: list[str], here: Path, s3: S3Server, capsys: pytest.CaptureFixture[str]
) -> None:
    with chdir(here), loaded_once(here / SCRIPT):
        assert invoke([*command, "--checkpoints", "s3://no-such/path"]) == 1
    (line,) = without_warnings(capsys.readouterr().err)
    assert line.startswith("error: s3://no-such/path")
    assert "there is no such bucket (status 404, NoSuchBucket: " in line


def test_a_store_that_fills_up_ends_the_run_and_its_last_checkpoint_stays(here: Path, uri: str, s3: S3Server) -> None:
    def fill(at_us: int, event: Event) -> None:
        if isinstance(event, CheckpointCompleted):
            s3.refusal, s3.refused = QUOTA, frozenset({"PUT", "POST"})

    with chdir(here):
        with pytest.raises(CheckpointError, match="the store is full") as raised:
            run_heard(fill, here / SCRIPT, checkpoints=uri)
        line = error_line(raised.value)
        assert line.endswith(" (the last checkpoint is intact)")
        s3.heal()
        (here / "slow").unlink()
        assert run(Path(SCRIPT).resolve(), "--checkpoints", uri).returncode == 0
        check(here)


def test_a_run_does_not_wait_for_a_store_that_it_has_never_reached(
    here: Path, monkeypatch: pytest.MonkeyPatch, s3: S3Server, impatient: None
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with chdir(here):
        ended = run(here / SCRIPT, "--checkpoints", f"s3://{BUCKET}/x")
    assert ended.returncode == 1
    (line,) = without_warnings(ended.stderr)
    assert "the store at http://127.0.0.1:1 does not answer (Connection refused)" in line
