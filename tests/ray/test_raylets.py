"""Several nodes on one machine: tasks talk TCP across them, and one of them can be joined by its address."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.start_raylets import raylets
from tests.ray.counting_job import expected_digest

pytestmark = pytest.mark.ray

SCRIPT = """
import json, sys
from clonos_py.connectors.digests import read_digest
from clonos_py.dsl.settings import resolve
from clonos_py.observe.events import Deployed, StandbyActivated
from clonos_py.runtime.ray.cluster import import_ray
from clonos_py.runtime.ray.run import run
from tests.ray.counting_job import counting
folder, address = sys.argv[1:]
nodes, activated = [], []
def hear(event):
    if isinstance(event, Deployed):
        ray = import_ray()
        places = ray.get(ray.get_actor("counting", namespace="clonos").processes.remote())
        nodes.extend(place.node for place in places)
    if isinstance(event, StandbyActivated):
        activated.append(str(event.task))
settings = resolve(command_line={"address": address, "kills": ["count[0]@2s"], "checkpoint_interval": "1s"})
run(counting(folder, 8_000, 2_000.0, standbys=0), settings, hear)
found = [read_digest(f"{folder}/{witness}") for witness in ("rows", "near", "far")]
print(json.dumps([*found, activated, len(set(nodes))]))
"""


def test_a_job_spreads_over_the_nodes_and_a_task_without_a_standby_is_replaced(tmp_path: Path) -> None:
    """In a process of its own: a process is connected to one cluster at a time."""
    with raylets(2) as address:
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, str(tmp_path), address],
            env={**os.environ, "RAY_AUTH_MODE": "token", "PYTHONPATH": str(Path(__file__).parents[2])},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    rows, near, far, activated, nodes = json.loads(done.stdout)
    assert tuple(rows) == expected_digest(8_000)
    assert near == far
    assert activated == ["count[0]"]
    assert nodes == 2
