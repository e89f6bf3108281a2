"""Runs inside of jobs that ``ray job submit`` gives to a cluster."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from clonos_py.runtime.submitted import on_its_cluster
from clonos_py.settings.definitions import Settings
from clonos_py.settings.resolution import resolve
from deploy.start_raylets import Raylets, raylets
from tests.clusters.test_stop_command import actors
from tests.ray.numbers_command import CLONOS, JOB
from tests.visible_rows import visible_rows
from tests.waiting import WAIT_S_MAX, wait_until

TOTAL = 40_000


@pytest.mark.parametrize(
    ("variables", "given", "address"),
    [
        ({"RAY_ADDRESS": "10.0.0.1:6379", "RAY_JOB_CONFIG_JSON_ENV_VAR": "{}"}, {}, "10.0.0.1:6379"),
        ({"RAY_ADDRESS": "10.0.0.1:6379", "RAY_JOB_CONFIG_JSON_ENV_VAR": "{}"}, {"address": "h:1"}, "h:1"),
        ({"RAY_ADDRESS": "10.0.0.1:6379", "RAY_JOB_CONFIG_JSON_ENV_VAR": "{}"}, {"runtime": "local"}, None),
        ({"RAY_ADDRESS": "10.0.0.1:6379"}, {}, None),
        ({}, {}, None),
    ],
)
def test_only_a_run_in_a_submitted_job_joins_its_cluster(
    variables: dict[str, str], given: dict[str, object], address: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RAY_ADDRESS", "RAY_JOB_CONFIG_JSON_ENV_VAR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    settings: Settings = resolve(command_line=given)
    assert on_its_cluster(settings).address == address


@pytest.mark.ray
@pytest.mark.thorough
@pytest.mark.skipif(find_spec("aiohttp_cors") is None, reason="ray[default] is not installed: clonos-py[ray-jobs]")
def test_a_submitted_job_runs_on_its_cluster_and_stops_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("CLONOS_LOG_LEVEL", "info")
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "job.py").write_text(JOB)
    checkpoints, out, unpaced = (tmp_path / name for name in ("checkpoints", "out", "unpaced"))
    run = [CLONOS, "run", "job.py", "--folder", str(out), "--total", str(TOTAL), "--parallelism", "2"]
    run += ["--unpaced", str(unpaced), "--checkpoints", str(checkpoints), "--checkpoint-interval", "500ms"]

    def ray_job(cluster: Raylets, *words: str) -> str:
        command = [str(Path(sys.executable).parent / "ray"), "job", *words]
        environment = {**os.environ, "RAY_API_SERVER_ADDRESS": cluster.dashboard}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=WAIT_S_MAX)
        return done.stdout + done.stderr

    with raylets(1, dashboard=True) as cluster:
        submit = ["submit", "--working-dir", str(tmp_path / "files"), "--submission-id"]
        ray_job(cluster, *submit, "one", "--no-wait", "--", *run)
        wait_until(lambda: list(checkpoints.rglob("*.manifest")), shown=lambda: ray_job(cluster, "logs", "one"))
        assert len(actors(cluster, "CoordinatorActor")) == 1, "on the cluster of the job, not on one of its own"
        ray_job(cluster, "stop", "one")
        *_, stopped, how, last = ray_job(cluster, "logs", "one").strip().splitlines()
        assert "numbers stopped after" in stopped
        assert how.startswith("to continue from the last checkpoint: clonos run job.py ")
        assert last == "terminated"
        wait_until(lambda: actors(cluster, "ProcessActor") == [])
        unpaced.touch()
        finished = ray_job(cluster, *submit, "two", "--", *run)
        assert "Job 'two' succeeded" in finished, finished
    assert sorted(row["id"] for row in visible_rows(out)) == list(range(TOTAL))
