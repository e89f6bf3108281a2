"""A small job whose tasks take their snapshots alone, interrupted when its newest manifest is a delta and names frames
in flight and logs; and its expected output."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from clonos_py import Context, Job, Process, Record, state
from clonos_py.checkpoint.layout import Location
from clonos_py.checkpoint.manifest import is_delta
from clonos_py.checkpoint.storage import CheckpointStore
from clonos_py.connectors import FileSink, FileSource, read_results
from clonos_py.model.snapshots import Manifest
from clonos_py.runtime.launch import run_job
from clonos_py.settings.resolution import resolve

ROWS, KEYS, FILES = 600, 5, 4
KINDS = ("frames", "logs", "delta")

pause_s = 0.0
"""How long each row takes."""


class Row(Record):
    id: int
    key: int


class Total(Record):
    id: int
    total: int


class Sum(Process[Row, Total]):
    total: int = state(0)

    def on_row(self, row: Row, ctx: Context) -> Total:
        time.sleep(pause_s)
        self.total += 1
        return Total(row.id, self.total)


def job(folder: Path) -> Job:
    job = Job("alone")
    source = FileSource(str(folder.parent / "rows"), format="jsonl", schema=Row)
    rows = job.source(source).named("rows").rebalance()
    rows.key_by("key").process(Sum).named("sums").sink(FileSink(str(folder / "out"))).named("out")
    return job


def run(folder: Path) -> None:
    """Runs or resumes to the end. Raises the ClonosError that ended it."""
    chosen = {"protocol": "uncoordinated", "parallelism": 2, "checkpoint_interval": "50ms", "frame_rows": 20}
    where = {"runtime": "local", "standbys": 0, "checkpoints": str(folder / "checkpoints")}
    run_job(job(folder), resolve({**chosen, **where}))


def write(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """The process dies with the first manifest that has all kinds of files."""
    (folder.parent / "rows").mkdir()
    for file in range(FILES):
        lines = (json.dumps({"id": id, "key": id % KEYS}) for id in range(file, ROWS, FILES))
        (folder.parent / "rows" / f"{file}.jsonl").write_text("".join(f"{line}\n" for line in lines))
    write_manifest = CheckpointStore.write_manifest

    def last(self: CheckpointStore, manifest: Manifest) -> None:
        write_manifest(self, manifest)
        if files(folder).keys() == set(KINDS):
            raise KeyboardInterrupt

    with patch.context() as dying:
        dying.setattr("tests.storage.alone.pause_s", 0.002)
        dying.setattr(CheckpointStore, "write_manifest", last)
        with pytest.raises(KeyboardInterrupt):
            run(folder)


def files(folder: Path) -> dict[str, Path]:
    """By kind, a file that the newest manifest needs."""
    latest = CheckpointStore(str(folder / "checkpoints"), "alone").latest()
    tasks = latest.tasks if latest else []
    line = folder / "checkpoints" / "alone" / "line"
    manifest = max((line / "manifests").iterdir())
    found = {"delta": manifest} if is_delta(manifest.read_bytes()) else {}
    for task in tasks:
        for stored in (stored for frames in task.frames.values() for stored in frames if stored.rows):
            found["frames"] = line / Location.parse(stored.location).file
        if task.logs is not None:
            found["logs"] = line / Location.parse(task.logs.location).file
    return found


def visible(folder: Path) -> list[dict[str, Any]]:
    return read_results(str(folder / "out"))


def check(folder: Path) -> None:
    """Every row is visible once, and no key has lost any."""
    found = visible(folder)
    assert sorted(row["id"] for row in found) == list(range(ROWS))
    assert sorted(row["total"] for row in found) == sorted(KEYS * list(range(1, ROWS // KEYS + 1)))


def check_part(folder: Path) -> None:
    """No row is visible twice."""
    ids = [row["id"] for row in visible(folder)]
    assert len(set(ids)) == len(ids)
