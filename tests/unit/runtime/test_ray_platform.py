"""The platform on Ray while Ray's head does not answer: the coordinator's loop, which calls it, must not wait. And
deaths, of which it knows before Ray."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import Future
from pathlib import Path
from queue import Empty, SimpleQueue
from types import SimpleNamespace
from typing import Any

import pytest

from clonos_py.job.events import ProcessDied, StartProcess
from clonos_py.model.ids import TaskId
from clonos_py.model.resources import Resources
from clonos_py.runtime.ray import platform as ray_platform
from clonos_py.runtime.ray.actor_registry import ProcessRequest
from clonos_py.runtime.ray.platform import RayPlatform
from tests.waiting import WAIT_S_MAX

REQUEST = StartProcess(1, TaskId("join", 0))


class HeadGoneError(Exception):
    pass


class Ray:
    """What a platform asks of Ray."""

    exceptions = SimpleNamespace(RayError=HeadGoneError, RayActorError=HeadGoneError)

    @staticmethod
    def kill(actor: Any) -> None:
        pass

    @staticmethod
    def wait(calls: Any, num_returns: int, timeout: float) -> None:
        pass

    @staticmethod
    def get_runtime_context() -> Any:
        return SimpleNamespace(get_node_id=lambda: "node", current_actor=None)


def platform(
    patch: pytest.MonkeyPatch, nodes: Any, folder: Path, notify: Any = lambda event: None
) -> tuple[RayPlatform, SimpleQueue[ProcessRequest]]:
    patch.setattr(ray_platform, "import_ray", lambda: Ray)
    patch.setattr(ray_platform, "node_ids", nodes)
    patch.setattr(ray_platform, "_AGAIN_S", 0.001)
    requested: SimpleQueue[ProcessRequest] = SimpleQueue()
    return RayPlatform(requested.put, lambda number: None, notify, 0, 1, folder), requested


def test_a_process_is_requested_when_the_head_is_back(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    gone = [HeadGoneError(), HeadGoneError()]

    def nodes() -> list[str]:
        if gone:
            raise gone.pop()
        return ["node"]

    found, requested = platform(monkeypatch, nodes, tmp_path)
    found.start(REQUEST)
    assert requested.get(timeout=WAIT_S_MAX) == ProcessRequest(1, REQUEST.task, "node", 1)
    found.close(0.0)


def test_the_coordinator_goes_on_until_the_head_answers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    went_on, happened = threading.Event(), []

    def nodes() -> list[str]:
        went_on.wait(1.0)  # without its own thread it would go on only now
        happened.append("answered")
        return ["node"]

    found, requested = platform(monkeypatch, nodes, tmp_path)
    found.start(REQUEST)
    found.kill(2)  # another one: the loop calls what it wants meanwhile
    happened.append("went on")
    went_on.set()
    assert requested.get(timeout=WAIT_S_MAX).number == 1
    assert happened == ["went on", "answered"]
    found.close(0.0)


def test_a_process_that_is_not_wanted_any_more_is_not_requested(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    killed = threading.Event()

    def nodes() -> list[str]:
        assert killed.wait(WAIT_S_MAX)
        return ["node"]

    found, requested = platform(monkeypatch, nodes, tmp_path)
    found.start(REQUEST)
    found.kill(REQUEST.process)
    killed.set()
    found.start(StartProcess(2, REQUEST.task))
    assert requested.get(timeout=WAIT_S_MAX).number == 2
    found.close(0.0)


class Actor:
    """A host process as far as a platform asks. ``ended``: what Ray says of its end."""

    def __init__(self) -> None:
        self.ended: Future[None] = Future()
        self.watch = SimpleNamespace(remote=lambda term: SimpleNamespace(future=lambda: self.ended))
        self.watched: list[tuple[int, int, int]] = []
        self.watch_neighbour = SimpleNamespace(remote=lambda *watched: self.watched.append(watched))


def joined(found: RayPlatform, requested: SimpleQueue[ProcessRequest], number: int = 1) -> Actor:
    """A process that was requested and created."""
    found.start(StartProcess(number, REQUEST.task))
    requested.get(timeout=WAIT_S_MAX)
    actor = Actor()
    found.join(number, actor)
    return actor


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere processes have no handles")
def test_a_death_is_known_before_ray_knows_and_what_the_process_had_is_free_afterwards(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    events: SimpleQueue[Any] = SimpleQueue()
    asked: SimpleQueue[str] = SimpleQueue()

    def resources() -> dict[str, Any]:
        asked.put("asked")
        return {"node": SimpleNamespace(free=Resources(cpus=1.0))}

    found, requested = platform(monkeypatch, lambda: ["node"], tmp_path, events.put)
    monkeypatch.setattr(ray_platform, "node_resources", resources)
    monkeypatch.setattr(ray_platform, "_FREED_S", WAIT_S_MAX)
    actor, process = joined(found, requested), subprocess.Popen(["sleep", "600"])
    found.introduce(1, process.pid, process.pid, "node")
    process.kill()
    process.wait()
    assert events.get(timeout=WAIT_S_MAX) == ProcessDied(1, "its process died")
    found.start(StartProcess(2, REQUEST.task, demand=Resources(cpus=1.0)))
    found.start(StartProcess(3, REQUEST.task))
    with pytest.raises(Empty):
        asked.get(timeout=0.1)
    assert requested.empty()
    actor.ended.set_exception(HeadGoneError("it died"))
    assert requested.get(timeout=WAIT_S_MAX).number == 2
    assert requested.get(timeout=WAIT_S_MAX).number == 3
    assert events.empty()
    found.close(0.0)


def test_an_end_that_only_ray_knows_is_reported_with_what_ray_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    events: SimpleQueue[Any] = SimpleQueue()
    found, requested = platform(monkeypatch, lambda: ["node"], tmp_path, events.put)
    actor = joined(found, requested)
    pid = 2**22 + 1
    (tmp_path / f"{pid}.note").touch()  # crash notes lie in a folder that both nodes have
    found.introduce(1, pid, pid, "another node")
    actor.ended.set_exception(HeadGoneError("its node has died"))
    assert events.get(timeout=WAIT_S_MAX) == ProcessDied(1, "its node was lost")
    found.close(0.0)


def test_processes_on_another_node_report_the_deaths_of_their_neighbours(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    events: SimpleQueue[Any] = SimpleQueue()
    found, requested = platform(monkeypatch, lambda: ["other"], tmp_path, events.put)
    actors: dict[int, Actor] = {}
    for number in (1, 2, 3):
        actors[number] = joined(found, requested, number)
        (tmp_path / f"{number}.note").touch()
        found.introduce(number, number, 10 * number, "other")
    assert [actor.watched for actor in actors.values()] == [[(2, 2, 20)], [(1, 1, 10), (3, 3, 30)], []]
    found.on_died(2)
    assert events.get(timeout=WAIT_S_MAX) == ProcessDied(2, "its process died")
    assert actors[1].watched[1:] == [(3, 3, 30)]
    assert actors[3].watched == [(1, 1, 10)]
    found.on_died(2)
    found.kill(3)
    assert events.empty()
    found.close(0.0)
