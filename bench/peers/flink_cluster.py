"""Starts a Flink session cluster on this machine: one JobManager, and one TaskManager with a slot for each task.

Both are started for one run and ended after it, so that no run starts with compiled code or garbage of another.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

from clonos_py.bench.peers.environment import Environment
from clonos_py.bench.ports import free_ports
from clonos_py.model.errors import SettingError

_START_S, _STOP_S = 60.0, 10.0
_REASON_BYTES = 500


@dataclass(frozen=True)
class FlinkCluster:
    """A running session cluster. ``log``: the folder of its logs."""

    rest_port: int
    log: Path

    def get(self, path: str) -> Any:
        """The decoded JSON answer of the REST interface."""
        with urllib.request.urlopen(f"http://localhost:{self.rest_port}{path}", timeout=10) as answer:
            return json.load(answer)

    def cancel(self, job: str) -> None:
        """Cancels a job. Flink answers 409 if the job has already ended. That is no error: the state that Flink reports
        can be three seconds old. Raises SettingError if Flink refuses for another reason."""
        request = urllib.request.Request(f"http://localhost:{self.rest_port}/jobs/{job}?mode=cancel", method="PATCH")
        try:
            urllib.request.urlopen(request, timeout=10).close()
        except urllib.error.HTTPError as refused:
            with refused:
                reason = refused.read(_REASON_BYTES).decode(errors="replace")
            if refused.code != HTTPStatus.CONFLICT:
                raise SettingError(f"Flink did not cancel job {job}: status {refused.code}, {reason}") from refused


@contextmanager
def cluster(environment: Environment, folder: Path, settings: Mapping[str, str]) -> Iterator[FlinkCluster]:
    """Runs a cluster within the block. ``settings`` are its configuration. Its files are in ``folder``."""
    conf, log = folder / "conf", folder / "log"
    conf.mkdir(parents=True)
    log.mkdir()
    rest, rpc = free_ports(2)
    ports = {"rest.port": str(rest), "rest.bind-port": str(rest), "jobmanager.rpc.port": str(rpc)}
    _write_conf(environment.flink_home / "conf", conf, {**settings, **ports})
    processes = []
    try:
        for script in ("jobmanager.sh", "taskmanager.sh"):
            processes.append(_started(environment, script, conf, log))
        running = FlinkCluster(rest, log)
        _wait_for_slots(running, processes)
        yield running
    finally:
        for process in reversed(processes):
            _end(process)


def _write_conf(original: Path, conf: Path, settings: Mapping[str, str]) -> None:
    for path in original.iterdir():
        (conf / path.name).write_bytes(path.read_bytes())
    own = "".join(f"{key}: {json.dumps(value)}\n" for key, value in settings.items())
    opens = next(line for line in (original / "config.yaml").read_text().splitlines() if "--add-exports" in line)
    java = f"env.java.opts.all: {json.dumps(opens.split(':', 1)[1].strip())}\n"
    (conf / "config.yaml").write_text(java + own)


def _started(environment: Environment, script: str, conf: Path, log: Path) -> subprocess.Popen[bytes]:
    path = environment.flink_home / "bin" / script
    variables = {
        "FLINK_HOME": str(environment.flink_home),
        "FLINK_CONF_DIR": str(conf),
        "FLINK_LOG_DIR": str(log),
        "PATH": f"{environment.python.parent}:{os.environ['PATH']}",
    }
    with (log / f"{script}.out").open("wb") as out:
        return subprocess.Popen(
            ["bash", str(path), "start-foreground"],
            env={**os.environ, **variables},
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _wait_for_slots(running: FlinkCluster, processes: list[subprocess.Popen[bytes]]) -> None:
    until = time.monotonic() + _START_S
    while time.monotonic() < until and all(process.poll() is None for process in processes):
        try:
            if running.get("/overview")["slots-available"]:
                return
        except (OSError, urllib.error.URLError, json.JSONDecodeError):
            pass
        time.sleep(0.2)
    raise SettingError(f"Flink did not start: its logs are in {running.log}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends a process of the cluster and all processes that it has started."""
    for kind in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            os.killpg(process.pid, kind)
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                continue
