"""Ctrl-C and SIGTERM of a command whose job runs on a Ray of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from clonos_py.runtime.ray.process_table import descendants, entries
from deploy.start_raylets import raylets
from tests.often import often
from tests.ray.numbers_command import HEEDING, started
from tests.visible_rows import visible_rows
from tests.waiting import SOON_S, WAIT_S_MAX, wait_until

pytestmark = pytest.mark.ray

JOB = """
import time
from clonos_py import Job, Record
from clonos_py.connectors import FileSink, MemorySource
from tests.often import often

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


@pytest.mark.parametrize("number", often([signal.SIGINT, signal.SIGTERM], [signal.SIGTERM]))
def test_an_interrupted_command_ends_at_once_together_with_its_ray(number: signal.Signals, tmp_path: Path) -> None:
    file = tmp_path / "interrupted_on_ray.py"
    file.write_text(JOB)
    command = [sys.executable, "-m", "clonos_py.cli.main", "run", str(file), "--out", str(tmp_path / "out")]
    command += ["--checkpoints", str(tmp_path / "checkpoints"), "--checkpoint-interval", "1s"]
    process = subprocess.Popen([*HEEDING, *command], stderr=subprocess.PIPE, text=True)
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
    assert process.returncode == 128 + number, printed
    *summary, how, last = printed.splitlines()
    assert any(line.startswith("interrupted_on_ray stopped after ") for line in summary), printed
    assert how.startswith("to continue from the last checkpoint: ")
    assert last == ("interrupted" if number == signal.SIGINT else "terminated")
    wait_until(lambda: not running() & started)
    assert took_s < SOON_S


@pytest.mark.thorough
def test_a_job_that_is_interrupted_again_and_again_writes_each_row_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also by a signal that comes before its first checkpoint, while it resumes."""
    total, checkpoints = 100_000, tmp_path / "checkpoints"

    def manifests() -> set[str]:
        return {path.name for path in checkpoints.rglob("line/manifests/*.manifest")}

    def has_begun() -> bool:
        commands = [command for _, command in descendants(cluster.head_pid)]
        return all(any(c.startswith(f"ray::{name}") for c in commands) for name in ("CoordinatorActor", "ProcessActor"))

    def interrupted(number: signal.Signals, ready: Callable[[], bool]) -> None:
        with started(tmp_path, *given) as process:
            wait_until(lambda: ready() or process.poll() is not None)
            process.send_signal(number)
            _, printed = process.communicate(timeout=WAIT_S_MAX)
        assert process.returncode == 128 + number, printed
        assert printed.splitlines()[-2].startswith("to continue from the last checkpoint: clonos run job.py ")

    def has_moved(before: set[str]) -> Callable[[], bool]:
        return lambda: bool(manifests() - before)

    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    with raylets(1) as cluster:
        given = ["--total", str(total), "--unpaced", str(tmp_path / "unpaced"), "--checkpoint-interval", "300ms"]
        given += ["--checkpoints", str(checkpoints), "--address", cluster.address]
        interrupted(signal.SIGINT, has_moved(manifests()))
        interrupted(signal.SIGTERM, has_begun)
        interrupted(signal.SIGINT, has_moved(manifests()))
        assert 0 < len(visible_rows(tmp_path / "out")) < total
        (tmp_path / "unpaced").touch()
        with started(tmp_path, *given) as process:
            _, printed = process.communicate(timeout=WAIT_S_MAX)
        assert process.returncode == 0, printed
    assert sorted(row["id"] for row in visible_rows(tmp_path / "out")) == list(range(total))
