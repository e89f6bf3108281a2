"""``clonos run`` of a job on Ray, as a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.waiting import attempts

HEEDING = [
    sys.executable,
    "-c",
    f"import signal, os, sys; signal.signal({signal.SIGINT:d}, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])",
]
"""Begins a command that SIGINT interrupts: a shell's background jobs, and what they start, ignore it."""
CLONOS = str(Path(sys.executable).parent / "clonos")
JOB = """
from clonos_py import Job
from clonos_py.bench.witnesses import PacedNumbers
from clonos_py.connectors import FileSink

def job(folder: str, total: int, unpaced: str = "") -> Job:
    job = Job("numbers")
    job.source(PacedNumbers(total, 200, unpaced)).rebalance().sink(FileSink(folder, format="jsonl"))
    return job
"""


@contextmanager
def started(folder: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """Runs the job with its output in ``folder/out``, and temporary files in ``folder/t``."""
    (folder / "job.py").write_text(JOB)
    temp = folder / "t"
    temp.mkdir(exist_ok=True)
    command = [*HEEDING, CLONOS, "run", "job.py", "--folder", str(folder / "out"), "--parallelism", "2", *options]
    environment = {**os.environ, "TMPDIR": str(temp), "RAY_TMPDIR": "/tmp"}
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def await_checkpoint(folder: Path, process: subprocess.Popen[str]) -> None:
    """Waits until a second checkpoint in the folder, or below, is complete."""
    for _ in attempts():
        if len(list(folder.rglob("line/manifests/*.manifest"))) >= 2:
            break
        assert process.poll() is None, process.communicate()
