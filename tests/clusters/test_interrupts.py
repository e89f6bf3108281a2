"""Ctrl-C and SIGTERM of a command whose job runs on a Ray of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from clonos_py.runtime.ray.process_table import descendants, entries
from tests.waiting import SOON_S, wait_until

pytestmark = pytest.mark.ray

JOB = """
import time
from clonos_py import Job, Record
from clonos_py.connectors import FileSink, MemorySource

class Row(Record):
    number: int

def slow(row: Row) -> Row:
    time.sleep(0.002)
    return row

def job(out: str) -> Job:
    job = Job("interrupted_on_ray")
    rows = job.source(MemorySource([Row(number) for number in range(1_000_000)], batch_rows=1 << 20)).named("rows")
    rows.map(slow).named("slow").sink(FileSink(out, format="csv")).named("out")
    return job
"""


def running() -> set[int]:
    """The processes without those that have ended and are only still listed."""
    return {process.pid for process, command in entries() if command}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_command_ends_at_once_together_with_its_ray(number: signal.Signals, tmp_path: Path) -> None:
    file = tmp_path / "interrupted_on_ray.py"
    file.write_text(JOB)
    command = [sys.executable, "-m", "clonos_py.cli.main", "run", str(file), "--out", str(tmp_path / "out")]
    command += ["--checkpoints", str(tmp_path / "checkpoints"), "--checkpoint-interval", "1s"]
    heeding = f"import signal, os, sys; signal.signal({signal.SIGINT:d}, signal.default_int_handler); "
    heeding += "os.execv(sys.argv[1], sys.argv[1:])"  # a shell's background jobs ignore it
    process = subprocess.Popen([sys.executable, "-c", heeding, *command], stderr=subprocess.PIPE, text=True)
    try:
        manifests = tmp_path / "checkpoints"
        while process.poll() is None and not list(manifests.rglob("*.manifest")):
            time.sleep(0.05)
        assert process.poll() is None, process.communicate()[1]
        started = {pid for pid, _ in descendants(process.pid)}
        assert len(started) >= 4, "a head, a raylet, a coordinator, a task"
        sent = time.monotonic()
        os.kill(process.pid, number)
        _, printed = process.communicate(timeout=120)
        took_s = time.monotonic() - sent
    finally:
        process.kill()
    assert process.returncode == 130, printed
    *_, stopped, how, last = printed.splitlines()
    assert stopped.startswith("interrupted_on_ray stopped after ")
    assert how.startswith("to continue from the last checkpoint: ")
    assert last == "interrupted"
    wait_until(lambda: not running() & started)
    assert took_s < SOON_S
