"""The processes of a job as actors of the driver: they outlive their coordinator, and end with the run.

Ray ends an actor together with its maker. So the coordinator only wishes for processes; the driver, with which a run
ends in any case, makes them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from clonos_py.model.ids import TaskId
from clonos_py.runtime.ray.cluster import Cluster, import_ray
from clonos_py.runtime.ray.process_actor import ProcessActor, concurrency


class Wish(NamedTuple):
    """A process that the coordinator wants for a task: in the home that is there already, else in a new one on this
    node. Should the node be lost, the process counts as one that has died."""

    number: int
    task: TaskId
    node: str
    home: int


class Member(NamedTuple):
    """A process that may be alive. ``up``: Ray has brought its actor up, so that it can answer."""

    task: TaskId
    actor: Any
    home: int
    up: bool


class _Home(NamedTuple):
    """An actor, and what is done when it is up."""

    actor: Any
    ready: Any


class Crew:
    """All processes that were made and that no coordinator has dismissed."""

    def __init__(self, packed_deployments: Mapping[str, bytes], cluster: Cluster, standbys_per_process: int) -> None:
        """``packed_deployments``: what the processes of each vertex get."""
        self._ray = import_ray()
        self._packed = {vertex: self._ray.put(packed) for vertex, packed in packed_deployments.items()}
        self._class = self._ray.remote(ProcessActor)
        self._options = {"max_concurrency": concurrency(standbys_per_process), **cluster.actor_options()}
        self._shared = standbys_per_process > 1
        self._members: dict[int, tuple[TaskId, int]] = {}
        self._homes: dict[int, _Home] = {}

    def make(self, wish: Wish, coordinator: Any, incarnation: int) -> Any:
        """The actor of a new process, which begins to run."""
        home = self._homes.get(wish.home) or self._open(wish, coordinator, incarnation)
        self._members[wish.number] = wish.task, wish.home
        home.actor.lodge.remote(self._packed[wish.task.vertex], wish.number, wish.task)
        return home.actor

    def _open(self, wish: Wish, coordinator: Any, incarnation: int) -> _Home:
        options = {"scheduling_strategy": on_node(wish.node), **self._options}
        told = wish.home if self._shared else 0
        actor = self._class.options(**options).remote(told, coordinator, incarnation)
        home = self._homes[wish.home] = _Home(actor, actor.__ray_ready__.remote())
        return home

    def members(self) -> dict[int, Member]:
        """By number."""
        pending = [home.ready for home in self._homes.values()]
        done, _ = self._ray.wait(pending, num_returns=len(pending), timeout=0) if pending else ([], [])
        return {
            number: Member(task, self._homes[home].actor, home, self._homes[home].ready in done)
            for number, (task, home) in self._members.items()
        }

    def dismiss(self, numbers: Collection[int]) -> None:
        """These are gone, or will be. Ray ends an actor that nobody refers to."""
        for number in numbers:
            self._members.pop(number, None)
        inhabited = {home for _, home in self._members.values()}
        self._homes = {number: home for number, home in self._homes.items() if number in inhabited}

    def end_without_ray(self) -> list[Any]:
        """Has all actors end themselves: calls between processes need neither head nor raylet. Gives what to wait for
        (they never answer)."""
        return [home.actor.die.remote() for home in self._homes.values()]

    def close(self) -> None:
        """Ends whoever is left."""
        for home in self._homes.values():
            self._ray.kill(home.actor)
        self._members.clear()
        self._homes.clear()


def on_node(node: str) -> Any:
    """Where Ray must put an actor. A soft wish is none: actors that reserve nothing then go to any node."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(node, soft=False)
