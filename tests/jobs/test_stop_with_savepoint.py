"""``clonos stop --savepoint``: the checkpoint with which a job stops gets a name."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from clonos_py import Job
from clonos_py.bench.witnesses import PacedNumbers
from clonos_py.checkpoint.storage import CheckpointStore
from clonos_py.cli.main import invoke
from clonos_py.connectors import FileSink, read_results
from tests.waiting import wait_until

TOTAL = 2_000
NAME = f"numbers-{os.getpid()}"
"""A run is found by its name, and other processes run tests, too."""


def job(folder: Path) -> Job:
    job = Job(NAME)
    job.source(PacedNumbers(TOTAL, 200, str(folder / "unpaced"))).sink(FileSink(str(folder / "out"), format="jsonl"))
    return job


@pytest.mark.parametrize(
    ("checkpoints", "protocol"),
    [
        ("checkpoints", "aligned"),
        ("checkpoints", "uncoordinated"),
        ("checkpoints", "unaligned"),
        ("elsewhere", "aligned"),
    ],
)
def test_a_local_run(tmp_path: Path, capsys: pytest.CaptureFixture[str], checkpoints: str, protocol: str) -> None:
    """Once with the folder that it has, and once with that of another run."""
    folder, elsewhere = str(tmp_path / "checkpoints"), str(tmp_path / "elsewhere")
    store = CheckpointStore(folder, NAME)
    handle = job(tmp_path).start(
        runtime="local", parallelism=2, checkpoints=folder, checkpoint_interval="100ms", protocol=protocol
    )
    wait_until(lambda: store.latest() is not None)
    assert invoke(["stop", NAME, "--savepoint", "last", "--checkpoints", elsewhere]) == 1
    assert "has no checkpoints yet" in capsys.readouterr().err
    last = store.latest()
    assert last is not None
    CheckpointStore(elsewhere, NAME).open_generation()
    store.copy(last, CheckpointStore(elsewhere, NAME))
    found = invoke(["stop", NAME, "--savepoint", "last", "--checkpoints", str(tmp_path / checkpoints)])
    handle.wait()
    printed = capsys.readouterr()
    newest = store.latest()
    assert newest is not None
    if checkpoints == "elsewhere":
        assert found == 1
        assert f"{NAME!r} has stopped, and its last checkpoint is not in" in printed.err
        return
    assert (found, printed.err) == (0, "")
    assert printed.out.splitlines()[-1] == f"savepoint 'last' is checkpoint {newest.checkpoint} of {NAME!r}"
    assert list(store.savepoints()) == ["last"]
    (tmp_path / "unpaced").touch()
    trial = str(tmp_path / "trial")
    store.copy(store.savepoint("last"), CheckpointStore(trial, NAME))
    job(tmp_path).run(runtime="local", parallelism=2, checkpoints=trial, protocol=protocol)
    assert sorted(row["id"] for row in read_results(str(tmp_path / "out"))) == list(range(TOTAL))


def test_a_folder_goes_with_a_savepoint(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["stop", NAME, "--checkpoints", "here"]) == 2
    assert "--checkpoints goes with --savepoint" in capsys.readouterr().err


def test_a_run_that_is_not_detached_needs_its_folder(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert invoke(["stop", "nobody", "--savepoint", "last"]) == 1
    error = capsys.readouterr().err
    assert error == "error: 'nobody' is no detached run: name the folder of its checkpoints with --checkpoints\n"
