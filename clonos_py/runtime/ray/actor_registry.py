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


class ProcessRequest(NamedTuple):
    """A process that the coordinator requests for a task: in an existing host process, else in a new one on this node.
    If the node is lost, the process counts as dead. ``reuse``: the process there in whose place it begins."""

    number: int
    task: TaskId
    node: str
    host_process: int
    reuse: int | None = None


class RegisteredProcess(NamedTuple):
    """A process that may be alive. ``up``: Ray has brought its actor up, so that it can answer."""

    task: TaskId
    actor: Any
    host_process: int
    up: bool


class _Host(NamedTuple):
    """An actor, and what is done when it is up."""

    actor: Any
    ready: Any


class ActorRegistry:
    """All processes that were made and that no coordinator has dismissed."""

    def __init__(self, packed_deployments: Mapping[str, bytes], cluster: Cluster, standbys_per_process: int) -> None:
        """``packed_deployments``: what the processes of each vertex get."""
        self._ray = import_ray()
        self._packed = {vertex: self._ray.put(packed) for vertex, packed in packed_deployments.items()}
        self._class = self._ray.remote(ProcessActor)
        self._options = {"max_concurrency": concurrency(standbys_per_process), **cluster.actor_options()}
        self._shared = standbys_per_process > 1
        self._members: dict[int, tuple[TaskId, int]] = {}
        self._host_processes: dict[int, _Host] = {}

    def make(self, wish: ProcessRequest, coordinator: Any, term: int) -> Any:
        """The actor of a new process, which begins to run."""
        host_process = self._host_processes.get(wish.host_process) or self._open(wish, coordinator, term)
        self._members[wish.number] = wish.task, wish.host_process
        host_process.actor.start_process.remote(self._packed[wish.task.vertex], wish.number, wish.task, wish.reuse)
        return host_process.actor

    def _open(self, wish: ProcessRequest, coordinator: Any, term: int) -> _Host:
        options = {"scheduling_strategy": on_node(wish.node), **self._options}
        told = wish.host_process if self._shared else 0
        actor = self._class.options(**options).remote(told, coordinator, term)
        host_process = self._host_processes[wish.host_process] = _Host(actor, actor.__ray_ready__.remote())
        return host_process

    def members(self) -> dict[int, RegisteredProcess]:
        """By number."""
        pending = [host_process.ready for host_process in self._host_processes.values()]
        done, _ = self._ray.wait(pending, num_returns=len(pending), timeout=0) if pending else ([], [])
        return {
            number: RegisteredProcess(
                task,
                self._host_processes[host_process].actor,
                host_process,
                self._host_processes[host_process].ready in done,
            )
            for number, (task, host_process) in self._members.items()
        }

    def dismiss(self, numbers: Collection[int]) -> None:
        """These are gone, or will be. Ray ends an actor without references."""
        for number in numbers:
            self._members.pop(number, None)
        inhabited = {host_process for _, host_process in self._members.values()}
        self._host_processes = {
            number: host_process for number, host_process in self._host_processes.items() if number in inhabited
        }

    def end_without_ray(self) -> list[Any]:
        """Has all actors end themselves: calls between processes need neither head nor raylet. Gives what to wait for
        (they never answer)."""
        return [host_process.actor.die.remote() for host_process in self._host_processes.values()]

    def close(self) -> None:
        """Ends those that are left."""
        for host_process in self._host_processes.values():
            self._ray.kill(host_process.actor)
        self._members.clear()
        self._host_processes.clear()


def on_node(node: str) -> Any:
    """Where Ray must put an actor. A soft wish is none: actors that reserve nothing then go to any node."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(node, soft=False)
