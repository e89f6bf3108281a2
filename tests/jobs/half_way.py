"""A job over rows from files that is stopped midway; other runs resume from there."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path

from clonos_py.checkpoint.storage import CheckpointStore
from tests.jobs.in_process import Ended, run, run_until

KEPT = ("checkpoints", "out")
SCRIPT = "job.py"
RECORDS = """
from __future__ import annotations
import itertools
import os
import time
from clonos_py import *
from clonos_py.connectors import *

class Row(Record):
    id: int
    key: int

class Total(Record):
    id: int
    total: int

rows_seen = itertools.count()

def take_time() -> None:
    if os.path.exists("slow"):
        row = next(rows_seen)
        time.sleep(0.0005 if row < 100 else 0.01 if row < 300 else 0.05)
"""
"""How a job begins that reads the files and writes to the folder ``out``. It is slow until it is stopped: its last
rows take seconds, longer than its first checkpoints do on a busy machine."""


def kept_job(settings: str) -> str:
    """A job named ``kept`` that counts the rows of each key, with these settings besides the runtime."""
    return (
        RECORDS
        + f"""
def seen(row: Row) -> Row:
    take_time()
    return row

job = Job("kept", runtime="local", {settings})
rows = job.source(FileSource("in", format="jsonl", schema=Row)).named("rows").map(seen)
totals = rows.key_by("key").aggregate(total=count()).named("totals")
rows.sink(FileSink("out")).named("out")
totals.at_end().sink(FileSink("totals")).named("ends")
"""
    )


def save_half_way(checkpoints: str) -> None:
    """Makes a savepoint of the newest checkpoint of that job."""
    store = CheckpointStore(checkpoints, "kept")
    latest = store.latest()
    assert latest is not None
    store.write_savepoint("half way", latest)


def some_results() -> bool:
    return len(list(Path("out").glob("*.jsonl"))) >= 2


def stopped_half_way(
    folder: Path, job: str, files: int, rows: int, keys: int, enough: Callable[[], bool] = some_results
) -> Path:
    """Writes the input, runs the job until ``enough`` holds in its folder, and saves its files. Returns ``folder``."""
    write(folder, job, files, rows, keys)
    with chdir(folder):
        run_until(enough, folder / SCRIPT, checkpoints="checkpoints")
    (folder / "slow").unlink()
    for kept in KEPT:
        shutil.copytree(folder / kept, folder / "saved" / kept)
    return folder


def write(folder: Path, job: str, files: int, rows: int, keys: int) -> None:
    """Writes the job and its input, and makes it slow."""
    (folder / SCRIPT).write_text(job)
    (folder / "in").mkdir()
    for file in range(files):
        content = [{"id": number, "key": number % keys} for number in range(file, rows, files)]
        (folder / "in" / f"{file}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in content))
    (folder / "slow").touch()


def put_back() -> None:
    """Restores the working folder from when the job was stopped."""
    for kept in KEPT:
        shutil.rmtree(kept)
        shutil.copytree(f"saved/{kept}", kept)


def go_on(*more: str) -> Ended:
    return run(Path(SCRIPT).resolve(), "--checkpoints", "checkpoints", "--checkpoint-interval", "500ms", *more)
