"""The actors of a job's processes, owned by the driver: they outlive their coordinator and end with the run.

Ray ends an actor together with its creator. So the coordinator only requests processes. The driver creates them: a run
ends with its driver in any case.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from clonos_py.model.ids import TaskId
from clonos_py.runtime.ray.cluster import Cluster, import_ray
from clonos_py.runtime.ray.process_actor import ProcessActor, concurrency


class ProcessRequest(NamedTuple):
    """A process that the coordinator requests for a task: in an existing host process, else in a new one on this node.
    If the node is lost, the process counts as dead. ``reuse``: the process in that host process that it replaces."""

    number: int
    task: TaskId
    node: str
    host_process: int
    reuse: int | None = None


class RegisteredProcess(NamedTuple):
    """A process that may be running. ``up``: Ray has started its actor, so that it can answer."""

    task: TaskId
    actor: Any
    host_process: int
    up: bool


class _HostProcess(NamedTuple):
    """An actor. ``ready``: a reference that is done when Ray has started it."""

    actor: Any
    ready: Any


class ActorRegistry:
    """All processes that were created and that no coordinator has dismissed."""

    def __init__(self, packed_deployments: Mapping[str, bytes], cluster: Cluster, standbys_per_process: int) -> None:
        """``packed_deployments``: the packed ``Deployment`` for the processes of each vertex."""
        self._ray = import_ray()
        self._packed = {vertex: self._ray.put(packed) for vertex, packed in packed_deployments.items()}
        self._class = self._ray.remote(ProcessActor)
        self._options = {"max_concurrency": concurrency(standbys_per_process), **cluster.actor_options()}
        self._shared = standbys_per_process > 1
        self._processes: dict[int, tuple[TaskId, int]] = {}
        self._host_processes: dict[int, _HostProcess] = {}

    def create(self, request: ProcessRequest, coordinator: Any, term: int) -> Any:
        """Starts a new process and returns its actor."""
        host_process = self._host_processes.get(request.host_process) or self._open(request, coordinator, term)
        self._processes[request.number] = request.task, request.host_process
        host_process.actor.start_process.remote(
            self._packed[request.task.vertex], request.number, request.task, request.reuse
        )
        return host_process.actor

    def _open(self, request: ProcessRequest, coordinator: Any, term: int) -> _HostProcess:
        options = {"scheduling_strategy": on_node(request.node), **self._options}
        reported_number = request.host_process if self._shared else 0
        actor = self._class.options(**options).remote(reported_number, coordinator, term)
        host_process = self._host_processes[request.host_process] = _HostProcess(actor, actor.__ray_ready__.remote())
        return host_process

    def processes(self) -> dict[int, RegisteredProcess]:
        """All processes by number."""
        pending = [host_process.ready for host_process in self._host_processes.values()]
        done, _ = self._ray.wait(pending, num_returns=len(pending), timeout=0) if pending else ([], [])
        return {
            number: RegisteredProcess(
                task,
                self._host_processes[host_process].actor,
                host_process,
                self._host_processes[host_process].ready in done,
            )
            for number, (task, host_process) in self._processes.items()
        }

    def dismiss(self, numbers: Collection[int]) -> None:
        """Drops processes that have ended or are about to. Ray ends an actor that has no references."""
        for number in numbers:
            self._processes.pop(number, None)
        used = {host_process for _, host_process in self._processes.values()}
        self._host_processes = {
            number: host_process for number, host_process in self._host_processes.items() if number in used
        }

    def end_without_ray(self) -> list[Any]:
        """Calls all actors to end themselves: calls between processes need neither head nor raylet. Returns references
        to wait for; the calls never return."""
        return [host_process.actor.die.remote() for host_process in self._host_processes.values()]

    def close(self) -> None:
        """Kills all actors that are left."""
        for host_process in self._host_processes.values():
            self._ray.kill(host_process.actor)
        self._processes.clear()
        self._host_processes.clear()


def on_node(node: str) -> Any:
    """The scheduling strategy that puts an actor on this node. It is hard, because with a soft one Ray puts actors that
    reserve nothing on any node."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(node, soft=False)
