"""Sources that cannot read again, on real actors: their task is killed in the middle, and every row is checked."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from clonos_py import Job, Record, col
from clonos_py.bench.fault_injector import FaultInjector, InjectedFault
from clonos_py.connectors import FileSink, SocketSource, WebhookSource
from clonos_py.runtime.ray.cluster import Cluster
from tests.line_servers import Counting, free_port, serving
from tests.posting import Clients
from tests.visible_rows import visible_rows
from tests.waiting import wait_while_running

pytestmark = pytest.mark.ray

PACE_S = 0.002
ON_THE_WAY = 250
"""So many lines may be between the server and the log: what is sent in half a second."""


class Item(Record):
    id: int


def ids(out: Path) -> list[int]:
    return [row["id"] for row in visible_rows(out)]


@pytest.mark.thorough
def test_no_line_of_a_server_is_read_twice_and_no_logged_line_is_lost(cluster: Cluster, tmp_path: Path) -> None:
    """Killed in the middle, it loses the lines in flight to it, and these are neighbours. Killed when all sent lines
    are in the output, it loses none."""
    counting, out = Counting(1_500, pause_s=PACE_S), tmp_path / "out"
    job = Job("lines-on-ray", checkpoint_interval="1s")
    with serving(counting) as server:
        lines = job.source(SocketSource("127.0.0.1", server.port, Item)).named("lines").parallelism(1)
        lines.rebalance().filter(col("id") >= 0).sink(FileSink(str(out), delivery="causal")).named("out")
        run = job.start(parallelism=2, checkpoints=str(tmp_path / "checkpoints"))
        injector = FaultInjector(job.name)
        wait_while_running(run, lambda: len(ids(out)) >= 500)
        injector.inject(InjectedFault.TASK, ["lines[0]"])
        wait_while_running(run, lambda: 1_499 in ids(out))
        time.sleep(0.5)
        middle = ids(out)
        assert server.connections == 2
        injector.inject(InjectedFault.TASK, ["lines[0]"])
        wait_while_running(run, lambda: server.connections == 3)
        counting.total = 2_000
        wait_while_running(run, lambda: 1_999 in ids(out))
        time.sleep(0.5)
        run.stop()
    found = ids(out)
    assert len(set(found)) == len(found)
    lost = sorted(set(range(2_000)) - set(found))
    assert lost == sorted(set(range(1_500)) - set(middle))
    assert not lost or lost == list(range(lost[0], lost[-1] + 1))
    assert len(lost) <= ON_THE_WAY
    assert not lost or lost[0] >= 500, "visible rows stay"


@pytest.mark.thorough
def test_answered_rows_are_visible_once_although_their_task_is_killed(cluster: Cluster, tmp_path: Path) -> None:
    port, out = free_port(), tmp_path / "out"
    job = Job("posts-on-ray", checkpoint_interval="500ms")
    rows = job.source(WebhookSource(port, Item)).named("posts").parallelism(1)
    rows.rebalance().filter(col("id") >= 0).sink(FileSink(str(out))).named("out")
    sending = Clients(f"http://127.0.0.1:{port}/", count=8, each=18)
    run = job.start(parallelism=2, checkpoints=str(tmp_path / "checkpoints"))
    injector = FaultInjector(job.name)
    with sending.sending():
        for taken in (40, 90):
            wait_while_running(run, lambda taken=taken: len(sending.taken) >= taken)  # type: ignore[misc]
            injector.inject(InjectedFault.TASK, ["posts[0]"])
        wait_while_running(run, lambda: sending.done)
    wait_while_running(run, lambda: set(ids(out)) >= set(sending.taken))
    run.stop()
    assert sorted(sending.taken) == sorted(ids(out)) == list(range(144))
    assert sending.again, "it was killed while rows were sent"
