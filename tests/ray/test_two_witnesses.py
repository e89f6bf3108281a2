"""Exactly once, nondeterminism included, on real actors.

SIGKILL of every task in turn, of neighbours at once, of a task while another recovers, and of a standby: both witnesses
must agree on every record.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import ray

from clonos_py.connectors import read_results
from clonos_py.dsl.settings import resolve
from clonos_py.model.ids import TaskId
from clonos_py.observe.events import Deployed, Event, Replayed, RolledBack, StandbyActivated, TaskFailed
from clonos_py.runtime.launch import run_job
from clonos_py.runtime.ray.actors import ProcessPlace
from clonos_py.runtime.ray.cluster import Cluster
from tests.ray.witness_job import witnesses

pytestmark = pytest.mark.ray

FRAMES_AT_LEAST = 20


class _Oracle(BaseHTTPRequestHandler):
    """Answers every request with a number that it never gave before."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # header and body in one packet
    disable_nagle_algorithm = True
    numbers = itertools.count(1)

    def do_GET(self) -> None:
        body = str(next(self.numbers)).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):  # its client was killed
            super().handle()

    def log_message(self, format: str, *args: object) -> None:
        """Not to the terminal."""


@pytest.fixture
def oracle() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Oracle)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def test_both_witnesses_agree_on_every_record_whatever_dies(cluster: Cluster, oracle: str, tmp_path: Path) -> None:
    """Checkpoints come every 2 s; kills come 1.5 s after one, so that each loses something."""
    turns = ["numbers[0]", "numbers[1]", "enrich[0]", "enrich[1]", "left[0]", "left[1]", "rank[0]", "rank[1]"]
    kills = [f"{task}@{1.5 + 2.5 * turn}s" for turn, task in enumerate(turns)]
    kills += ["enrich[0]@22s", "rank[0]@22s"]  # neighbours at once
    kills += ["enrich[1]@25s", "numbers[0]@25.06s"]  # an upstream while its receiver recovers
    total, rate = 5_600, 100
    events: list[Event] = []

    def kill_a_standby(event: Event) -> None:
        events.append(event)
        if isinstance(event, Deployed):
            places: list[ProcessPlace] = ray.get(ray.get_actor("witnesses", namespace="clonos").processes.remote())
            os.kill(next(p.pid for p in places if p.task == TaskId("left", 1) and not p.active), signal.SIGKILL)

    settings = resolve(command_line={"kills": kills, "checkpoint_interval": "2s", "parallelism": 2})
    run_job(witnesses(oracle, str(tmp_path), total, rate), settings, kill_a_standby)

    failed = [event for event in events if isinstance(event, TaskFailed)]
    activated = [event.task for event in events if isinstance(event, StandbyActivated)]
    assert [event for event in events if isinstance(event, RolledBack)] == []
    assert len(failed) == len(kills)
    assert sorted(activated) == sorted(event.task for event in failed), "attempts changed of others than the killed"
    idle = [f"{event.task}: {event.frames_at_stake}" for event in failed if event.frames_at_stake < FRAMES_AT_LEAST]
    assert not idle, f"these kills had too little to lose to prove anything: {idle}"
    assert sum(event.rows > 0 for event in events if isinstance(event, Replayed)) >= len(kills) - 2

    left = {row["id"]: row for row in read_results(str(tmp_path / "left"))}
    right = list(read_results(str(tmp_path / "right")))
    assert len(list(read_results(str(tmp_path / "left")))) == len(right) == total
    assert sorted(row["id"] for row in right) == sorted(left) == list(range(total))
    assert [row["id"] for row in right if left[row["id"]] != {k: v for k, v in row.items() if k != "rank"}] == []
    for key in range(13):
        assert sorted(row["rank"] for row in right if row["key"] == key) == list(
            range(1, sum(row["key"] == key for row in right) + 1)
        )
