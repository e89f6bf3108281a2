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
from clonos_py.observe.events import Replayed
from clonos_py.runtime.ray.run import run
from tests.ray.counting_job import counting
folder, address = sys.argv[1:]
events = []
settings = resolve(command_line={"address": address, "kills": ["count[0]@2s"], "checkpoint_interval": "1s"})
run(counting(folder, 8_000, 2_000.0), settings, events.append)
found = [read_digest(f"{folder}/{witness}") for witness in ("rows", "near", "far")]
print(json.dumps([*found, sum(isinstance(event, Replayed) for event in events)]))
"""


def test_a_job_spreads_over_the_nodes_it_joined_and_survives_a_kill(tmp_path: Path) -> None:
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
    rows, near, far, replayed = json.loads(done.stdout)
    assert tuple(rows) == expected_digest(8_000)
    assert near == far
    assert replayed == 1
