"""The processes of a job as actors of the driver: they outlive their coordinator, and end with the run.

Ray ends an actor together with its maker. So the coordinator only wishes for processes; the driver, with which a run
ends in any case, makes them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from clonos_py.model.ids import TaskId
from clonos_py.runtime.ray.cluster import Cluster, import_ray
from clonos_py.runtime.ray.process_actor import PROCESS_THREADS, ProcessActor


class Wish(NamedTuple):
    """A process that the coordinator wants for a task, on this node if that can be."""

    number: int
    task: TaskId
    node: str


class Member(NamedTuple):
    """A process that may be alive. ``up``: Ray has brought its actor up, so that it can answer."""

    task: TaskId
    actor: Any
    up: bool


class Crew:
    """All processes that were made and that no coordinator has dismissed."""

    def __init__(self, packed_deployments: Mapping[str, bytes], cluster: Cluster) -> None:
        """``packed_deployments``: what the processes of each vertex get."""
        self._ray = import_ray()
        self._packed = {vertex: self._ray.put(packed) for vertex, packed in packed_deployments.items()}
        self._class = self._ray.remote(ProcessActor)
        self._options = {"max_concurrency": PROCESS_THREADS, **cluster.actor_options()}
        self._actors: dict[int, tuple[TaskId, Any, Any]] = {}

    def make(self, wish: Wish, coordinator: Any, incarnation: int) -> Any:
        """The actor of a new process, which begins to run."""
        options = {"scheduling_strategy": on_node(wish.node), **self._options}
        actor = self._class.options(**options).remote(
            self._packed[wish.task.vertex], wish.number, wish.task, coordinator, incarnation
        )
        self._actors[wish.number] = wish.task, actor, actor.__ray_ready__.remote()
        actor.run.remote()
        return actor

    def members(self) -> dict[int, Member]:
        """By number."""
        pending = [ready for _, _, ready in self._actors.values()]
        done, _ = self._ray.wait(pending, num_returns=len(pending), timeout=0) if pending else ([], [])
        return {number: Member(task, actor, ready in done) for number, (task, actor, ready) in self._actors.items()}

    def dismiss(self, numbers: Collection[int]) -> None:
        """These are gone, or will be."""
        for number in numbers:
            self._actors.pop(number, None)

    def close(self) -> None:
        """Ends whoever is left."""
        for _, actor, _ in self._actors.values():
            self._ray.kill(actor)
        self._actors.clear()


def on_node(node: str) -> Any:
    """Where Ray should put an actor if it can."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(node, soft=True)
