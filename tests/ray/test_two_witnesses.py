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
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import ray

from clonos_py.connectors import read_results
from clonos_py.dsl.settings import resolve
from clonos_py.observe.events import (
    CheckpointCompleted,
    Deployed,
    Event,
    Replayed,
    RolledBack,
    StandbyActivated,
    TaskFailed,
)
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


KILLS = (
    *((task,) for task in ("numbers[0]", "numbers[1]", "enrich[0]", "enrich[1]")),
    *((task,) for task in ("left[0]", "left[1]", "rank[0]", "rank[1]")),
    ("enrich[0]", "rank[0]"),  # neighbours at once
    ("enrich[1]", "numbers[0]"),  # an upstream while its receiver recovers
)
_AFTER_CHECKPOINT_S = 1.4
_APART_S = {KILLS[-1]: 0.06}


class Killer:
    """Kills tasks with SIGKILL, some while after each checkpoint, so that each kill loses something."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._left = list(KILLS)
        self._next = threading.Timer(0, self._kill_group)

    def __call__(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, Deployed):
            self._kill("left[1]", active=False)
        if isinstance(event, CheckpointCompleted) and self._left:
            self._next.cancel()
            self._next = threading.Timer(_AFTER_CHECKPOINT_S, self._kill_group)
            self._next.start()

    def _kill_group(self) -> None:
        group = self._left.pop(0)
        for task in group:
            self._kill(task)
            time.sleep(_APART_S.get(group, 0))

    def _kill(self, task: str, active: bool = True) -> None:
        places: list[ProcessPlace] = ray.get(ray.get_actor("witnesses", namespace="clonos").processes.remote())
        os.kill(next(p.pid for p in places if str(p.task) == task and p.active == active), signal.SIGKILL)


def test_both_witnesses_agree_on_every_record_whatever_dies(cluster: Cluster, oracle: str, tmp_path: Path) -> None:
    total, rate = 7_200, 100
    killer = Killer()
    settings = resolve(command_line={"checkpoint_interval": "2s", "parallelism": 2})
    run_job(witnesses(oracle, str(tmp_path), total, rate), settings, killer)

    events, kills = killer.events, [task for group in KILLS for task in group]
    failed = [event for event in events if isinstance(event, TaskFailed)]
    activated = [event.task for event in events if isinstance(event, StandbyActivated)]
    assert [event for event in events if isinstance(event, RolledBack)] == []
    assert sorted(str(event.task) for event in failed) == sorted(kills)
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
