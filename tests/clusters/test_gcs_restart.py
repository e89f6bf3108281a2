"""Ray's head service (GCS), with Redis as its storage, is killed and started again under a detached run."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from clonos_py.bench.ports import free_ports
from clonos_py.checkpoint.storage import CheckpointStore
from clonos_py.runtime.ray.process_table import descendants
from deploy.start_raylets import Raylets, raylets
from tests.clusters.test_stop_command import actors
from tests.ray.numbers_command import CLONOS, JOB
from tests.visible_rows import visible_rows
from tests.waiting import WAIT_S_MAX, wait_until

TOTAL = 40_000

pytestmark = [
    pytest.mark.ray,
    pytest.mark.thorough,
    pytest.mark.skipif(shutil.which("redis-server") is None, reason="redis-server is not installed"),
]


@contextmanager
def redis(folder: Path) -> Iterator[str]:
    """A server that listens at the address, and keeps nothing."""
    port = free_ports(1)[0]
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            assert any("Ready to accept connections" in line for line in server.stdout)
            yield f"127.0.0.1:{port}"
        finally:
            server.kill()


class HeadService:
    """The GCS of a cluster. What has started the head is paused: it would end all processes of the node with it."""

    def __init__(self, cluster: Raylets) -> None:
        os.kill(cluster.head_pid, signal.SIGSTOP)
        (self._pid,) = [pid for pid, command in descendants(cluster.head_pid) if command.endswith("gcs_server")]
        process = Path("/proc", str(self._pid))
        self._command = (process / "cmdline").read_bytes().split(b"\0")[:-1]
        self._environment = dict(
            entry.split(b"=", 1) for entry in (process / "environ").read_bytes().split(b"\0") if b"=" in entry
        )

    def kill(self) -> None:
        os.kill(self._pid, signal.SIGKILL)

    @contextmanager
    def again(self) -> Iterator[None]:
        """Runs it again within the block, as it was started."""
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        with subprocess.Popen(self._command, env=self._environment, **quiet) as server:  # type: ignore[call-overload]
            try:
                yield
            finally:
                server.kill()


def test_a_detached_run_goes_on_while_the_gcs_is_gone_and_recovers_tasks_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    (tmp_path / "job.py").write_text(JOB)
    checkpoints = str(tmp_path / "checkpoints")
    store = CheckpointStore(checkpoints, "numbers")

    def clonos(*words: str) -> subprocess.CompletedProcess[str]:
        command = [CLONOS, *words, "--address", cluster.address]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=WAIT_S_MAX)

    def status() -> dict[str, Any]:
        asked = clonos("status", "numbers", "--json")
        return json.loads(asked.stdout) if asked.returncode == 0 else {"state": asked.stderr, "recoveries": []}

    def newest() -> int:
        last = store.latest()
        return 0 if last is None else last.checkpoint

    with redis(tmp_path) as address:
        with monkeypatch.context() as patch:
            patch.setenv("RAY_REDIS_ADDRESS", address)
            started = raylets(1)
            cluster = started.__enter__()
        try:
            given = ["--folder", str(tmp_path / "out"), "--total", str(TOTAL), "--unpaced", str(tmp_path / "unpaced")]
            given += ["--parallelism", "2", "--checkpoint-interval", "500ms", "--checkpoints", checkpoints]
            deployed = clonos("run", "job.py", *given, "--detach")
            assert deployed.returncode == 0, deployed.stderr
            wait_until(lambda: len(actors(cluster, "ProcessActor")) == 4 + 1)
            processes, driver = actors(cluster, "ProcessActor"), actors(cluster, "DriverActor")
            service = HeadService(cluster)
            service.kill()
            before = newest()
            wait_until(lambda: newest() > before + 1)
            with service.again():
                wait_until(lambda: status()["state"] == "running", shown=status)
                assert (actors(cluster, "ProcessActor"), actors(cluster, "DriverActor")) == (processes, driver)
                assert status()["recoveries"] == []
                before = newest()
                wait_until(lambda: newest() > before)
                os.kill(processes[0], signal.SIGKILL)
                wait_until(lambda: len(actors(cluster, "ProcessActor")) == 4 + 1 and status()["state"] == "running")
                (tmp_path / "unpaced").touch()
                wait_until(lambda: status()["state"] == "finished", shown=status)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(cluster.head_pid, signal.SIGKILL)
            started.__exit__(None, None, None)
    assert sorted(row["id"] for row in visible_rows(tmp_path / "out")) == list(range(TOTAL))
