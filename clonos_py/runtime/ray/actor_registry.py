"""The actors of a job's processes, owned by the driver: they outlive their coordinator and end with the run.

Ray ends an actor together with its creator. So the coordinator only requests processes. The driver creates them: a run
ends with its driver in any case. A new process takes a second or more until it can do anything, and so does a new
coordinator. So the driver opens as many actors as the job has tasks before there are requests (``open_ahead``).
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from clonos_py.model.ids import TaskId
from clonos_py.runtime.ray.cluster import Cluster, import_ray
from clonos_py.runtime.ray.process_actor import ProcessActor, ProcessStart, concurrency


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
        self._ahead: defaultdict[str, list[_HostProcess]] = defaultdict(list)
        """By node: actors without a process."""

    def open_ahead(self, count: int, nodes: Sequence[str]) -> None:
        """Opens actors for the next requests, spread over the nodes as processes will be (``placement.py``)."""
        for number in range(count):
            node = nodes[number % len(nodes)]
            self._ahead[node].append(self._open(node))

    def close_ahead(self) -> None:
        """Kills the actors that were opened ahead and that no request needed."""
        for host_process in itertools.chain.from_iterable(self._ahead.values()):
            self._ray.kill(host_process.actor)
        self._ahead.clear()

    def create(self, request: ProcessRequest, coordinator: Any, term: int) -> Any:
        """Starts a new process and returns its actor."""
        host_process = self._host_processes.get(request.host_process)
        if host_process is None:
            ahead = self._ahead[request.node]
            host_process = ahead.pop(0) if ahead else self._open(request.node)
            self._host_processes[request.host_process] = host_process
        self._processes[request.number] = request.task, request.host_process
        start = ProcessStart(
            request.number, request.task, request.host_process if self._shared else 0, request.reuse, coordinator, term
        )
        host_process.actor.start_process.remote(self._packed[request.task.vertex], start)
        return host_process.actor

    def _open(self, node: str) -> _HostProcess:
        actor = self._class.options(scheduling_strategy=on_node(node), **self._options).remote()
        return _HostProcess(actor, actor.__ray_ready__.remote())

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
        ahead = itertools.chain.from_iterable(self._ahead.values())
        return [host_process.actor.die.remote() for host_process in (*self._host_processes.values(), *ahead)]

    def close(self) -> None:
        """Kills all actors that are left."""
        self.close_ahead()
        for host_process in self._host_processes.values():
            self._ray.kill(host_process.actor)
        self._processes.clear()
        self._host_processes.clear()


def on_node(node: str) -> Any:
    """The scheduling strategy that puts an actor on this node. It is hard, because with a soft one Ray puts actors that
    reserve nothing on any node."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(node, soft=False)
