"""Several nodes on one machine: tasks talk TCP across them, and one of them is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ray.counting_job import expected_digest

pytestmark = pytest.mark.ray

SCRIPT = """
import json, sys, threading
from clonos_py.connectors.digests import read_digest
from clonos_py.dsl.settings import resolve
from clonos_py.observe.events import Deployed, Finished, RolledBack, StandbyActivated
from clonos_py.runtime.ray.cluster import connected, import_ray
from clonos_py.runtime.ray.run import run
from deploy.start_raylets import raylets
from tests.ray.counting_job import counting

def places(ray):
    return ray.get(ray.get_actor("counting", namespace="clonos").processes.remote())

class Heard:
    def __init__(self, lose):
        self.lose, self.places, self.activated, self.rollbacks = lose, [], [], 0

    def __call__(self, event):
        if isinstance(event, Deployed):
            threading.Timer(2, self.harm).start()
        if isinstance(event, StandbyActivated):
            self.activated.append(str(event.task))
        self.rollbacks += isinstance(event, RolledBack)

    def harm(self):
        self.places = [(str(p.task), p.active, p.node) for p in places(import_ray())]
        self.lose()

def counted(folder, standbys, kills, lose):
    heard = Heard(lose)
    settings = resolve(command_line={"address": cluster.address, "kills": kills, "checkpoint_interval": "1s"})
    run(counting(folder, 8_000, 2_000.0, standbys=standbys), settings, heard)
    found = [read_digest(f"{folder}/{witness}") for witness in ("rows", "near", "far")]
    return {"found": found, "places": heard.places, "activated": heard.activated, "rollbacks": heard.rollbacks}

with raylets(3) as cluster, connected(cluster.address):
    first = counted(sys.argv[1] + "/first", 1, [], cluster.lose)
    print(json.dumps([first, counted(sys.argv[1] + "/second", 0, ["count[0]@2.5s"], lambda: None)]))
"""


def test_a_whole_node_is_lost_and_then_a_task_without_a_standby(tmp_path: Path) -> None:
    """In a process of its own: a process is connected to one cluster at a time."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)],
        env={**os.environ, "RAY_AUTH_MODE": "token", "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    first, second = json.loads(done.stdout)
    for run in (first, second):
        rows, near, far = run["found"]
        assert tuple(rows) == expected_digest(8_000)
        assert near == far
        assert run["rollbacks"] == 0
    nodes = {node for _, _, node in first["places"]}
    assert len(nodes) == 3
    for task in {task for task, _, _ in first["places"]}:
        mine = [node for other, _, node in first["places"] if other == task]
        assert len(set(mine)) == 2, f"{task} and its standby would die together"
    dead = {frozenset(t for t, active, node in first["places"] if active and node == lost) for lost in nodes}
    assert frozenset(first["activated"]) in dead, "the tasks of one node were replaced, and nobody else"
    assert len({node for _, _, node in second["places"]}) == 2
    assert second["activated"] == ["count[0]"]
