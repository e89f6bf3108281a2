"""A process of a job loads what its task needs, and nothing that other tasks or the command line need."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial

import pytest

from clonos_py import Instant, Job, Record, col, count, tumbling
from clonos_py.checkpoint.storage import CheckpointStore
from clonos_py.connectors import BlackholeSink, MemorySource
from clonos_py.plan.physical import plan
from clonos_py.plan.pickling import pack
from clonos_py.process.contract import ChannelLimits
from clonos_py.runtime.ray.process import Deployment, of_vertex
from clonos_py.settings.resolution import resolve
from tests.machines import sides_of

UNNEEDED = {
    "pandas",
    "polars",
    "httpx",
    "rich",
    "click",
    "h11",
    "kafka",
    "confluent_kafka",
    "ray",
    "zoneinfo",
}
UNNEEDED_ROOMS = {"cli", "dsl", "evaluation", "job", "plan", "settings", "testing"}
ROOM_MODULES_MAX = 255
PROCESS = """
import json, sys
from queue import SimpleQueue
from clonos_py.runtime.pandas_import import defer_pandas
from clonos_py.runtime.ray import process_actor
from clonos_py.runtime.ray.shipping import unpack

defer_pandas()
messages = SimpleQueue()
with open(sys.argv[1], "rb") as file:
    deployment = unpack(file.read())
task = process_actor.TaskId(sys.argv[2], 0)
process = process_actor.ProcessRuntime(deployment, 1, task, "node", "127.0.0.1", messages.put)
process.start()
started = messages.get(timeout=300)
process.abandon()
print(json.dumps([type(started).__name__, sorted(sys.modules)]))
"""


class Row(Record):
    number: int
    time: Instant


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The modules that the process of an idle task has loaded, by vertex."""
    folder = tmp_path_factory.mktemp("lean")
    job = Job("lean")
    rows = job.source(MemorySource([Row(1, 0)]), event_time="time").filter(col("number") > 0)
    rows.key_by("number").window(tumbling("1s")).aggregate(rows=count()).sink(BlackholeSink())
    physical = plan(job, resolve())
    open_store = partial(CheckpointStore, str(folder), physical.job)
    deployment = Deployment(
        physical, *sides_of(physical), open_store, b"secret", ChannelLimits(), 10_000, True, folder / "scratch"
    )
    found = {}
    for vertex in physical.vertices:
        (folder / "packed").write_bytes(pack(of_vertex(deployment, vertex.name)))
        command = [sys.executable, "-c", PROCESS, str(folder / "packed"), vertex.name]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stderr
        started, found[vertex.name] = json.loads(ended.stdout)
        assert started == "Started"
    return found


def test_an_idle_task_loads_no_library_that_it_does_not_use(loaded: dict[str, list[str]]) -> None:
    for vertex, modules in loaded.items():
        assert UNNEEDED.intersection(modules) == set(), vertex


def test_an_idle_task_loads_no_code_of_the_command_line_or_the_planner(loaded: dict[str, list[str]]) -> None:
    for vertex, modules in loaded.items():
        rooms = [module.split(".")[1] for module in modules if module.startswith("clonos_py.")]
        assert UNNEEDED_ROOMS.intersection(rooms) == set(), vertex
        assert len(rooms) <= ROOM_MODULES_MAX, vertex


def test_an_idle_task_loads_the_task_and_link_side_of_its_protocol_only(loaded: dict[str, list[str]]) -> None:
    for vertex, modules in loaded.items():
        found = {module.removeprefix("clonos_py.protocols.") for module in modules if ".protocols." in module}
        assert found == {"aligned", "aligned.task", "parts", "parts.channel_state"}, vertex
