"""What cannot be a detached run is refused before anything is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from clonos_py.cli.main import invoke

JOB = """
from clonos_py import Job
from clonos_py.connectors import BlackholeSink, FileSource

job = Job("quiet")
job.source(FileSource(__file__)).sink(BlackholeSink())
"""


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "needs a checkpoint folder that all nodes reach"),
        (("--checkpoints", "here", "--trace", "there"), "writes no trace"),
        (("--checkpoints", "here", "--runtime", "local"), "is one on Ray, and runtime = local"),
    ],
)
def test_it_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], said: str) -> None:
    path = tmp_path / f"{tmp_path.name}.py"  # a module of its own
    path.write_text(JOB)
    assert invoke(["run", str(path), "--detach", *options]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: a detached run ")
    assert said in error
    assert error.count("\n") == 1


def test_remove_goes_with_orphans(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["list", "--remove"]) == 2
    assert "--remove goes with --orphans" in capsys.readouterr().err


@pytest.mark.parametrize("tasks", ["many", "0", "join=", "=4", "join=0", "join=4=5x", "-1", "1.5"])
def test_a_parallelism_is_a_number_of_tasks(capsys: pytest.CaptureFixture[str], tasks: str) -> None:
    assert invoke(["rescale", "payments", "--parallelism", tasks]) == 2
    assert f"{tasks!r} is neither a number of tasks, such as 4, nor that of an operator" in capsys.readouterr().err
