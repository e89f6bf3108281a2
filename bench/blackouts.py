"""Kills Ray itself under a running job: the head, or the raylet of the driver's node, gets a SIGKILL.

A run cannot survive this. So each run is a separate command on a separate cluster. The run must end by itself, with
exit code 1 and one line of output. The next run starts on another cluster from the same checkpoints. It must continue
the job, and all results must be right.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from enum import Enum
from pathlib import Path
from tempfile import TemporaryDirectory

from clonos_py.bench import witnesses
from clonos_py.runtime.ray.process_table import descendants

_RATE = 100.0
_JOB = """
from clonos_py import Job
from clonos_py.bench.witnesses import witnesses

def job(server: str, folder: str, total: int, rate: float) -> Job:
    return witnesses(server, folder, total, rate)
"""
"""The job as a separate file: Ray does not ship a file of the package itself to the workers."""
_START_S_MAX, _END_S_MAX = 120.0, 30.0
_LINE = re.compile(
    r"error: [^\n]* is gone, and the job with it: checkpoint \d+ is complete; [^\n]* --checkpoints [^\n]*\n"
)


class Blackout(Enum):
    """Which process of Ray is killed. The value is the program's name."""

    HEAD = "gcs_server"
    RAYLET = "raylet"


def black_out(blackout: Blackout, seconds: float) -> str | None:
    """Runs the two-witness job, kills Ray under it, and runs it again to the end. ``seconds``: how long the job lasts
    without a failure. Returns what is wrong, or None."""
    from deploy.start_raylets import raylets  # beside the package, in a checkout

    total = int(seconds * _RATE) * witnesses.PARTITIONS
    with TemporaryDirectory(prefix="clonos-blackout-") as folder, witnesses.answer_server() as server:
        with raylets(1) as cluster, _started(server, folder, total, cluster.address) as process:
            if not _await_checkpoints(Path(folder), process):
                return f"no checkpoints: {_ended(process)}"
            _kill(blackout, cluster.head_pid)
            code, output = _ended(process)
            if code != 1 or not _LINE.fullmatch(output):
                return f"after the loss of {blackout.value} the run ended with {code}: {output}"
        with raylets(1) as cluster, _started(server, folder, total, cluster.address) as process:
            code, output = _ended(process, seconds + _START_S_MAX)
            if code != 0:
                return f"the next run ended with {code}: {output}"
        return witnesses.wrong(folder, total)


def _started(server: str, folder: str, total: int, address: str) -> subprocess.Popen[str]:
    file = Path(folder) / "witnesses_job.py"
    file.write_text(_JOB)
    job = [str(file), "--server", server, "--folder", folder]
    job += ["--total", str(total), "--rate", str(_RATE)]
    settings = [
        "--parallelism",
        "2",
        "--checkpoint-interval",
        "1s",
        "--checkpoints",
        f"{folder}/checkpoints",
        "--log-level",
        "off",
    ]
    command = [sys.executable, "-m", "clonos_py.cli.main", "run", *job, *settings, "--address", address]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def _ended(process: subprocess.Popen[str], patience_s: float = _END_S_MAX) -> tuple[int | None, str]:
    """Waits for the end and returns exit code and output. The code is None if the process had to be killed."""
    try:
        output, _ = process.communicate(timeout=patience_s)
    except subprocess.TimeoutExpired:
        process.kill()
        return None, process.communicate()[0]
    return process.returncode, output


def _await_checkpoints(folder: Path, process: subprocess.Popen[str]) -> bool:
    deadline = time.monotonic() + _START_S_MAX
    while time.monotonic() < deadline and process.poll() is None:
        if len(list(folder.glob("checkpoints/*/line/manifests/*.manifest"))) >= 2:
            return True
        time.sleep(0.1)
    return False


def _kill(blackout: Blackout, head_pid: int) -> None:
    for pid, command in descendants(head_pid):
        if command.endswith(f"/{blackout.value}"):
            os.kill(pid, signal.SIGKILL)
