"""The job of the guide's section on sources."""

from __future__ import annotations

from pathlib import Path

import httpx

from clonos_py import Job, Record
from clonos_py.connectors import FileSink, FileSource, WebhookSource
from tests.line_servers import free_port
from tests.visible_rows import visible_rows
from tests.waiting import wait_while_running


class Reading(Record):
    sensor: str
    degrees: float


def readings(folder: str, port: int) -> Job:
    job = Job("readings", checkpoint_interval="500ms")
    old, malformed = job.source(FileSource(f"{folder}/*.csv", Reading).catch())
    new = job.source(WebhookSource(port, Reading, "/readings"))
    old.union(new).sink(FileSink(f"{folder}/readings")).named("readings")
    malformed.sink(FileSink(f"{folder}/malformed", format="parquet")).named("malformed")
    return job


def test_readings_come_from_files_and_by_http(tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / "old.csv").write_text("sensor,degrees\na,1.5\nb,warm\nc,3.5\n")
    run = readings(str(tmp_path), port).start(runtime="local", checkpoints=str(tmp_path / "checkpoints"))
    wait_while_running(run, lambda: posted(port, [{"sensor": "d", "degrees": 4}]) == 200)
    assert posted(port, [{"sensor": "d"}]) == 400
    folders = (tmp_path / "readings", tmp_path / "malformed")
    wait_while_running(run, lambda: [len(visible_rows(folder)) for folder in folders] == [3, 1])
    run.stop()
    assert sorted(row["sensor"] for row in visible_rows(tmp_path / "readings")) == ["a", "c", "d"]
    (letter,) = visible_rows(tmp_path / "malformed")
    assert (letter["line"], letter["offset"]) == (3, 21)


def posted(port: int, rows: list[dict[str, object]]) -> int:
    try:
        return httpx.post(f"http://127.0.0.1:{port}/readings", json=rows, timeout=120).status_code
    except httpx.TransportError:
        return 0
