"""Several nodes on one machine: tasks talk TCP across them, and one of them is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.test_slow_functions import assert_all_rows
from tests.ray.counting_job import expected_digest

pytestmark = pytest.mark.ray

SCRIPT = """
import json, sys, threading
from pathlib import Path
from clonos_py.connectors.digests import read_digest
from clonos_py.settings.resolution import resolve
from clonos_py.model.coordinator_events import Deployed, Finished, RolledBack, StandbyActivated
from clonos_py.observe.events import TaskFailed
from clonos_py.plan.physical import plan
from clonos_py.runtime.ray.cluster import connected
from clonos_py.runtime.ray.run import run
from deploy.start_raylets import raylets
from tests.ray.counting_job import counting
from tests.ray.places import places

class Heard:
    def __init__(self, folder, lose):
        self.folder = folder
        self.lose, self.places, self.activated, self.silent, self.rollbacks = lose, [], [], [], 0
        self.standbys = 0

    def __call__(self, at_us, event):
        if isinstance(event, Deployed):
            self.standbys = event.standbys
            threading.Timer(2, self.harm).start()
        if isinstance(event, StandbyActivated):
            self.activated.append(str(event.task))
            if len(self.activated) == 6 // len({node for _, _, node, _ in self.places}):  # the tasks of one node
                Path(self.folder, "unpaced").touch()
        if isinstance(event, TaskFailed) and event.how.startswith("silent"):
            self.silent.append(str(event.task))
        self.rollbacks += isinstance(event, RolledBack)

    def harm(self):
        self.places = [(str(p.task), p.active, p.node, p.pid) for p in places("counting", self.standbys)]
        self.lose()

def counted(folder, standbys, kills, lose, rate, **more):
    heard = Heard(folder, lose)
    given = {"address": cluster.address, "kills": kills, "checkpoint_interval": "1s", **more}
    settings = resolve(command_line=given)
    run(counting(folder, 20_000, rate, standbys=standbys), settings, heard)
    found = [read_digest(f"{folder}/{witness}") for witness in ("rows", "near", "far")]
    return {"found": found, **{name: getattr(heard, name) for name in ("places", "activated", "silent", "rollbacks")}}

"""
LOST_AND_ALONE = """
with raylets(3) as cluster, connected(cluster.address):
    first = counted(sys.argv[1] + "/first", 1, [], cluster.lose, 200)
    print(json.dumps([first, counted(sys.argv[1] + "/second", 0, ["count[0]@2.5s"], lambda: None, 2_000)]))
"""
SHARED = """
with raylets(2) as cluster, connected(cluster.address):
    print(json.dumps(counted(sys.argv[1], 1, [], cluster.lose, 200, standbys_per_process=6)))
"""
LOCKING = """
from clonos_py.observe.events import TaskFailed
from tests.ray.test_slow_functions import each_instance_locks

with raylets(2) as cluster, connected(cluster.address):
    failed, nodes = [], []
    given = {"address": cluster.address, "parallelism": 2, "standbys": 0, "checkpoint_interval": "1s"}
    settings = resolve(command_line=given)
    def heard(at_us, event):
        if isinstance(event, TaskFailed):
            failed.append(str(event.task))
        if isinstance(event, Deployed):
            found = places("locking")
            nodes.extend(place.node for place in found if place.active and place.task.vertex == "locking")
    run(plan(each_instance_locks(sys.argv[1]), settings), settings, heard)
    print(json.dumps([failed, nodes]))
"""


def printed_by(script: str, folder: Path) -> Any:
    """The last output of a script, in a process of its own: a process is connected to one cluster at a time."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT + script, str(folder)],
        env={**os.environ, "RAY_AUTH_MODE": "token", "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.thorough
def test_a_whole_node_is_lost_and_then_a_task_without_a_standby(tmp_path: Path) -> None:
    first, second = printed_by(LOST_AND_ALONE, tmp_path)
    for run in (first, second):
        rows, near, far = run["found"]
        assert tuple(rows) == expected_digest(20_000)
        assert near == far
        assert run["rollbacks"] == 0
    nodes = {node for _, _, node, _ in first["places"]}
    assert len(nodes) == 3
    for task in {task for task, _, _, _ in first["places"]}:
        mine = [node for other, _, node, _ in first["places"] if other == task]
        assert len(set(mine)) == 2, f"{task} and its standby would die together"
    only_of_one_node(first)
    assert len({node for _, _, node, _ in second["places"]}) == 2
    assert second["activated"] == ["count[0]"]


def test_standbys_wait_on_the_other_node_and_tasks_share_no_process_when_one_of_two_nodes_is_lost(
    tmp_path: Path,
) -> None:
    run = printed_by(SHARED, tmp_path)
    rows, near, far = run["found"]
    assert tuple(rows) == expected_digest(20_000)
    assert near == far
    assert run["rollbacks"] == 0
    node_of = {task: node for task, active, node, _ in run["places"] if active}
    standbys = [(task, node, pid) for task, active, node, pid in run["places"] if not active]
    assert sorted(task for task, _, _ in standbys) == sorted(node_of)
    assert all(node != node_of[task] for task, node, _ in standbys)
    assert len({pid for _, _, pid in standbys}) == len(standbys), "the loss of a node would promote two of one process"
    only_of_one_node(run)


def only_of_one_node(run: dict[str, Any]) -> None:
    """The tasks of one node were replaced, and no others, except those that a busy machine kept silent for too long."""
    of_node: dict[str, set[str]] = {}
    for task, active, node, _ in run["places"]:
        if active:
            of_node.setdefault(node, set()).add(task)
    replaced = set(run["activated"])
    beside = [replaced - tasks for tasks in of_node.values() if tasks <= replaced]
    assert any(others <= set(run["silent"]) for others in beside), (of_node, replaced, run["silent"])


@pytest.mark.thorough
def test_a_function_that_holds_the_gil_is_waited_for_on_any_node(tmp_path: Path) -> None:
    failed, nodes = printed_by(LOCKING, tmp_path / "out")
    assert len(set(nodes)) == 2, "one instance is on the coordinator's node, one is not"
    assert failed == []
    assert_all_rows(tmp_path / "out", 20)
