"""Requests that are equal in all but the row that causes them, to a real server: what their idempotency keys
identify."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from clonos_py import Context, Job, Record
from clonos_py.connectors import FileSource, MemorySink
from clonos_py.model.errors import UserCodeError
from clonos_py.runtime.launch import run_job
from clonos_py.services.http import IDEMPOTENCY_KEY
from clonos_py.settings.resolution import resolve

FILES, ROWS = 15, 300


class Row(Record):
    id: int


def slowly(row: Row) -> Row:
    """Checkpoints are taken between files."""
    time.sleep(0.0005)
    return row


class Server:
    """Records the key under which each row had its effect. The request does not contain the row."""

    def __init__(self) -> None:
        self.url = ""
        self.row = -1
        self.fails_at = -1
        self.keys: dict[int, set[str]] = {}

    def charge(self, row: Row, ctx: Context) -> Row:
        self.row = row.id
        ctx.http.post(self.url, json={"cents": 100})
        if row.id == self.fails_at:
            raise ValueError("stop here")
        return row

    def job(self, name: str, folder: Path) -> Job:
        job = Job(name)
        rows = job.source(FileSource(str(folder / "in"), format="jsonl", schema=Row)).named("rows")
        charged = rows.map(slowly).rebalance().map(self.charge).named("charge")
        charged.rebalance().sink(MemorySink(f"{folder}-{name}")).named("out")
        return job

    def run(self, name: str, folder: Path, fails_at: int = -1, **settings: Any) -> set[str]:
        """The keys of this run."""
        self.keys, self.fails_at = {}, fails_at
        found = {"runtime": "local", "checkpoints": str(folder / "checkpoints"), "checkpoint_interval": "10ms"}
        try:
            run_job(self.job(name, folder), resolve({**found, **settings}))
        except UserCodeError:
            assert fails_at >= 0
        return {key for keys in self.keys.values() for key in keys}


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            server.keys.setdefault(server.row, set()).add(self.headers[IDEMPOTENCY_KEY])
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """No log of requests."""

    with _serving(Handler) as server.url:
        yield server


@contextmanager
def _serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    listening = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    listening.daemon_threads = True
    thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{listening.server_address[1]}/charge"
    listening.shutdown()
    thread.join()
    listening.server_close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    for number in range(FILES):
        ids = range(number * ROWS // FILES, (number + 1) * ROWS // FILES)
        (tmp_path / "in" / f"{number}.jsonl").write_text("".join(json.dumps({"id": row}) + "\n" for row in ids))
    return tmp_path


def test_two_jobs_with_equal_operators_send_different_keys(server: Server, folder: Path) -> None:
    first, second = server.run("one", folder), server.run("two", folder)
    assert len(first) == len(second) == ROWS
    assert not first & second


def test_a_fresh_run_sends_other_keys(server: Server, folder: Path) -> None:
    first, second = server.run("job", folder), server.run("job", folder, fresh=True)
    assert len(first) == len(second) == ROWS
    assert not first & second


@pytest.mark.parametrize("before", [pytest.param(1, marks=pytest.mark.thorough), 2])
def test_a_run_that_resumes_at_another_parallelism_uses_no_key_for_two_effects(
    server: Server, folder: Path, before: int
) -> None:
    server.run("job", folder, fails_at=ROWS // 2, parallelism=before)
    rows_of: dict[str, set[int]] = {key: {row} for row, keys in server.keys.items() for key in keys}
    first = set(rows_of)
    assert 0 < len(first) < ROWS
    second = server.run("job", folder, parallelism=3 - before)
    assert 0 < len(second) < ROWS, "it has resumed"
    for row, keys in server.keys.items():
        for key in keys:
            rows_of.setdefault(key, set()).add(row)
    assert [rows for rows in rows_of.values() if len(rows) > 1] == []
    lineages = [{key.split("-")[0] for key in keys} for keys in (first, second)]
    assert lineages[0] == lineages[1]
    assert len(lineages[0]) == 1


def test_a_resumed_run_and_its_replacements_continue_with_the_keys_of_the_lineage(server: Server, folder: Path) -> None:
    first = server.run("job", folder, fails_at=ROWS // 2)
    second = server.run("job", folder, kills=["charge[0]@20ms"])
    assert 0 < len(second) < ROWS, "it has resumed"
    assert all(len(keys) == 1 for keys in server.keys.values())
    assert len({key.split("/")[0] for key in first | second}) == 1
