"""The platform on Ray while Ray's head does not answer: the coordinator's loop, which calls it, must not wait."""

from __future__ import annotations

import threading
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import pytest

from clonos_py.job.events import StartProcess
from clonos_py.model.ids import TaskId
from clonos_py.runtime.ray import platform as ray_platform
from clonos_py.runtime.ray.actor_registry import ProcessRequest
from clonos_py.runtime.ray.platform import RayPlatform
from tests.waiting import WAIT_S_MAX

REQUEST = StartProcess(1, TaskId("join", 0))


class HeadGoneError(Exception):
    pass


class Ray:
    """What a platform asks of Ray before it has processes."""

    exceptions = SimpleNamespace(RayError=HeadGoneError, RayActorError=HeadGoneError)

    @staticmethod
    def get_runtime_context() -> Any:
        return SimpleNamespace(get_node_id=lambda: "node", current_actor=None)


def platform(patch: pytest.MonkeyPatch, nodes: Any, folder: Path) -> tuple[RayPlatform, SimpleQueue[ProcessRequest]]:
    patch.setattr(ray_platform, "import_ray", lambda: Ray)
    patch.setattr(ray_platform, "node_ids", nodes)
    patch.setattr(ray_platform, "_AGAIN_S", 0.001)
    requested: SimpleQueue[ProcessRequest] = SimpleQueue()
    return RayPlatform(requested.put, lambda number: None, lambda event: None, 0, 1, folder), requested


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
