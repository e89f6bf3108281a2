"""The actors of a job's processes, owned by the driver: they outlive their coordinator and end with the run.

Ray ends an actor together with its creator. So the coordinator only requests processes. The driver creates them: a run
ends with its driver in any case.

The actors of a detached run outlive their driver, too: Ray ends them only when it is told. A new driver finds them by
their names (``adopt``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from clonos_py.model.ids import TaskId
from clonos_py.model.resources import NO_RESOURCES, Resources
from clonos_py.runtime.ray.cluster import import_ray
from clonos_py.runtime.ray.names import named_actors, processes_of
from clonos_py.runtime.ray.opened_actors import HostProcess, OpenedActors
from clonos_py.runtime.ray.process_actor import HostDescription, ProcessStart

_ANSWER_S = 10.0
"""The time that the actors of a former driver get to answer."""


class ProcessRequest(NamedTuple):
    """A process that the coordinator requests for a task: in an existing host process, else in a new one on this node.
    If the node is lost, the process counts as dead. ``reuse``: the process in that host process that it replaces.
    ``demand``: what a new host process reserves."""

    number: int
    task: TaskId
    node: str
    host_process: int
    reuse: int | None = None
    demand: Resources = NO_RESOURCES


class RegisteredProcess(NamedTuple):
    """A process that may be running. ``up``: Ray has started its actor, so that it can answer."""

    task: TaskId
    actor: Any
    host_process: int
    up: bool


class ActorRegistry:
    """All processes that were created and that no coordinator has dismissed."""

    def __init__(
        self, packed_deployments: Mapping[str, bytes], opened: OpenedActors, standbys_per_process: int
    ) -> None:
        """``packed_deployments``: the packed ``Deployment`` for the processes of each vertex. ``opened``: where it
        takes actors from; those opened ahead are its own."""
        self._ray = import_ray()
        self._packed = {vertex: self._ray.put(packed) for vertex, packed in packed_deployments.items()}
        self.opened = opened
        self._shared = standbys_per_process > 1
        self._processes: dict[int, tuple[TaskId, int]] = {}
        self._host_processes: dict[int, HostProcess] = {}

    def create(self, request: ProcessRequest, coordinator: Any, term: int) -> Any:
        """Starts a new process and returns its actor."""
        host_process = self._host_processes.get(request.host_process)
        if host_process is None:
            host_process = self.opened.take(request.node, request.demand)
            self._host_processes[request.host_process] = host_process
        self._processes[request.number] = request.task, request.host_process
        start = ProcessStart(
            request.number, request.task, request.host_process, self._shared, request.reuse, coordinator, term
        )
        host_process.actor.start_process.remote(self._packed[request.task.vertex], start)
        return host_process.actor

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
        for number in [number for number in self._host_processes if number not in used]:
            host_process = self._host_processes.pop(number)
            if self.opened.detached is not None:
                host_process.actor.leave.remote()

    def adopt(self) -> int:
        """Takes over the actors of a driver that is gone, and ends those that do not answer or have no process. Returns
        the last term of its coordinators; -1 if none has started a process."""
        assert self.opened.detached is not None
        namespace = self.opened.namespace
        found = (actor_named(name, namespace) for name in named_actors_of(self.opened.detached, namespace))
        asked = {actor.describe.remote(): actor for actor in found if actor is not None}
        answered, _ = self._ray.wait(list(asked), num_returns=len(asked), timeout=_ANSWER_S) if asked else ([], [])
        term = -1
        for coming, actor in asked.items():
            described = self._described(coming) if coming in answered else None
            if described is None or not described.processes:
                self._ray.kill(actor)
                continue
            term = max(term, described.term)
            self._host_processes[described.host_process] = HostProcess(actor, coming)
            for number, task in described.processes.items():
                self._processes[number] = TaskId(*task), described.host_process
        return term

    def _described(self, coming: Any) -> HostDescription | None:
        try:
            return HostDescription(*self._ray.get(coming))
        except self._ray.exceptions.RayActorError:
            return None

    def end_without_ray(self) -> list[Any]:
        """Calls all actors to end themselves: calls between processes need neither head nor raylet. Returns references
        to wait for; the calls never return."""
        opened = (*self._host_processes.values(), *self.opened.ahead)
        return [host_process.actor.die.remote() for host_process in opened]

    def close(self) -> None:
        """Kills all actors that are left."""
        self.opened.close_ahead()
        for host_process in self._host_processes.values():
            self._ray.kill(host_process.actor)
        self._processes.clear()
        self._host_processes.clear()


def named_actors_of(detached: str, namespace: str) -> list[str]:
    """The names of the process actors of a detached run."""
    return [name for name in named_actors(processes_of(namespace)) if name.startswith(detached)]


def end_processes(names: Sequence[str], namespace: str) -> None:
    """Ends the process actors of these names, if they are still there."""
    for name in names:
        if (actor := actor_named(name, namespace)) is not None:
            import_ray().kill(actor)


def actor_named(name: str, namespace: str) -> Any | None:
    """The process actor of this name; None if it is gone."""
    try:
        return import_ray().get_actor(name, namespace=processes_of(namespace))
    except ValueError:
        return None
