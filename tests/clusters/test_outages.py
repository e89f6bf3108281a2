"""Ray itself is killed under a running job: its head, and the raylet of the driver's node."""

from __future__ import annotations

import os
import re
import signal
import time
from contextlib import nullcontext
from pathlib import Path

import pytest

from clonos_py.connectors import read_results
from clonos_py.runtime.ray.process_table import descendants
from deploy.start_raylets import raylets
from tests.observed import without_warnings
from tests.ray.numbers_command import await_checkpoint, started
from tests.waiting import SOON_S

pytestmark = pytest.mark.ray

LINE = re.compile(
    r"error: (Ray's head \(GCS\)|the raylet) at \S+:\d+( and the raylet at \S+)? is gone, and the job with it: "
    r"checkpoint \d+ is complete; to go on from it, run the job with --checkpoints (\S+)"
)


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
    (last,) = without_warnings(error)
    line = LINE.fullmatch(last)
    assert line is not None, error
    (left,) = (tmp_path / "t").glob("clonos-checkpoints-*")
    assert str(left) == line[3]
    if local:
        assert_another_goes_on(tmp_path, line[3])


def assert_another_goes_on(folder: Path, checkpoints: str) -> None:
    """In one process, with fewer rows, all of which it must have in the end."""
    options = ["--total", "4000", "--checkpoints", checkpoints, "--runtime", "local", "--checkpoint-interval", "500ms"]
    with started(folder, *options) as process:
        _, error = process.communicate(timeout=120)
    assert process.returncode == 0, error
    assert sorted(row["id"] for row in read_results(str(folder / "out"))) == list(range(4_000))
