"""Ray itself is killed under a running job: its head, and the raylet of the driver's node."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from clonos_py.connectors import read_results
from clonos_py.runtime.ray.process_table import descendants
from deploy.start_raylets import raylets
from tests.waiting import SOON_S, attempts

pytestmark = pytest.mark.ray

JOB = """
from clonos_py import Job
from clonos_py.bench.witnesses import PacedNumbers
from clonos_py.connectors import FileSink

def job(folder: str, total: int) -> Job:
    job = Job("numbers")
    job.source(PacedNumbers(total, 200)).rebalance().sink(FileSink(folder, format="jsonl"))
    return job
"""
"""Ray's core needs a minute. The machine of the test may be slow."""
LINE = re.compile(
    r"error: (Ray's head \(GCS\)|the raylet) at \S+:\d+( and the raylet at \S+)? is gone, and the job with it: "
    r"checkpoint \d+ is complete; to go on from it, run the job with --checkpoints (\S+) "
    r"\(the last checkpoint is intact\)\n"
)


@contextmanager
def started(folder: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """``clonos run``, with a temporary folder of its own."""
    (folder / "job.py").write_text(JOB)
    temp = folder / "t"
    temp.mkdir(exist_ok=True)
    command = [
        str(Path(sys.executable).parent / "clonos"),
        "run",
        "job.py",
        "--folder",
        str(folder / "out"),
        "--parallelism",
        "2",
    ]
    command += options
    environment = {**os.environ, "TMPDIR": str(temp), "RAY_TMPDIR": "/tmp"}
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def await_checkpoint(temp: Path, process: subprocess.Popen[str]) -> None:
    """Waits until the second checkpoint is complete."""
    for _ in attempts():
        if len(list(temp.glob("clonos-checkpoints-*/numbers/line/manifests/*.manifest"))) >= 2:
            break
        assert process.poll() is None, process.communicate()


def kill(program: str, pid: int) -> None:
    victims = [found for found, command in descendants(pid) if command.endswith(program)]
    assert len(victims) == 1
    os.kill(victims[0], signal.SIGKILL)


@pytest.mark.parametrize(
    ("local", "program"),
    [
        pytest.param(False, "gcs_server", marks=pytest.mark.thorough),
        (True, "raylet"),
        pytest.param(False, "raylet", marks=pytest.mark.thorough),
        pytest.param(True, "gcs_server", marks=pytest.mark.thorough),
    ],
)
def test_a_run_whose_ray_is_killed_ends_with_one_line_and_another_run_resumes(
    local: bool, program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled" if local else "token")
    with nullcontext() if local else raylets(1) as cluster:
        where = [] if cluster is None else ["--address", cluster.address]
        options = ["--total", "100000", "--checkpoint-interval", "500ms", *where]
        with started(tmp_path, *options) as process:
            await_checkpoint(tmp_path / "t", process)
            kill(program, process.pid if cluster is None else cluster.head_pid)
            killed = time.monotonic()
            out, error = process.communicate(timeout=120)
            assert time.monotonic() - killed < SOON_S
    assert (process.returncode, out) == (1, "")
    told = LINE.fullmatch(error)
    assert told is not None, error
    (left,) = (tmp_path / "t").iterdir()
    assert str(left) == told[3]
    if local:
        assert_another_goes_on(tmp_path, told[3])


def assert_another_goes_on(folder: Path, checkpoints: str) -> None:
    """In one process, with fewer rows, all of which it must have in the end."""
    options = ["--total", "4000", "--checkpoints", checkpoints, "--runtime", "local", "--checkpoint-interval", "500ms"]
    with started(folder, *options) as process:
        _, error = process.communicate(timeout=120)
    assert process.returncode == 0, error
    assert sorted(row["id"] for row in read_results(str(folder / "out"))) == list(range(4_000))
