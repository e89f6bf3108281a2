"""A job over rows from files that is stopped midway; other runs resume from there."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

KEPT = ("checkpoints", "out")
SCRIPT = "job.py"
RECORDS = """
from __future__ import annotations
import time
from clonos_py import *
from clonos_py.connectors import *

class Row(Record):
    id: int
    key: int

class Total(Record):
    id: int
    total: int
"""
"""How a job begins that reads the files and writes to the folder ``out``."""


def command(*more: str) -> list[str]:
    return [sys.executable, "-m", "clonos_py.cli.main", "run", SCRIPT, "--checkpoints", "checkpoints", *more]


def stopped_half_way(folder: Path, job: str, files: int, rows: int, keys: int) -> Path:
    """Writes the input, runs the job until some results are visible, and saves its files. Returns ``folder``."""
    (folder / SCRIPT).write_text(job)
    (folder / "in").mkdir()
    for file in range(files):
        content = [{"id": number, "key": number % keys} for number in range(file, rows, files)]
        (folder / "in" / f"{file}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in content))
    with subprocess.Popen(command(), cwd=folder, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None and len(list(folder.glob("out/*.jsonl"))) < 2:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
    assert process.returncode == 130
    for kept in KEPT:
        shutil.copytree(folder / kept, folder / "saved" / kept)
    return folder


def put_back() -> None:
    """Restores the working folder from when the job was stopped."""
    for kept in KEPT:
        shutil.rmtree(kept)
        shutil.copytree(f"saved/{kept}", kept)


def go_on(*more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*more), capture_output=True, text=True, check=False)
