"""The two kinds of actors of a job: one for each process, one for the coordinator.

Control messages are calls: ``ProcessActor.deliver`` and ``CoordinatorActor.tell``. An actor with several threads does
not keep the order of calls, so each carries a number (``InOrder``). ``ProcessActor.watch`` lasts as long as the
process; when it fails, Ray has seen the process die, some 10 ms ago.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from clonos_py.checkpoint.store import SnapshotStore
from clonos_py.connectors.terminal import CarriedLines, print_on
from clonos_py.job.events import EndJob, JobPolicy, ProcessDied, Report
from clonos_py.job.machine import JobMachine
from clonos_py.model import messages
from clonos_py.model.errors import ClonosError
from clonos_py.model.ids import TaskId
from clonos_py.model.messages import ToCoordinator, ToProcess
from clonos_py.runtime.ray.cluster import Cluster, import_ray
from clonos_py.runtime.ray.job_loop import Ears, Interrupt, JobLoop
from clonos_py.runtime.ray.ordering import InOrder
from clonos_py.runtime.ray.placement import Placement
from clonos_py.runtime.ray.process import Deployment, Process, tune_interpreter
from clonos_py.runtime.ray.shipping import unpack
from clonos_py.runtime.telling import News

PROCESS_THREADS = 4
"""One watches, the others deliver."""
COORDINATOR_THREADS = 8
"""One runs the job, one is asked for news, the others are told."""
_NEWS_S_MAX = 0.25
_PRINTED_CHARACTERS_MAX = 1 << 20
"""So many printed characters wait for the driver; whoever prints more is sent away until they are fetched."""


class ProcessActor:
    """One process of a job. It is built in ``watch``, so that creating the actor fails only with its host."""

    def __init__(self, packed: bytes, number: int, task: TaskId, coordinator: Any) -> None:
        self._packed, self._number, self._task, self._coordinator = packed, number, TaskId(*task), coordinator
        self._process: Process | None = None
        self._built = threading.Event()
        self._in_order = InOrder(self._deliver)
        self._told = 0
        self._telling = threading.Lock()

    def watch(self) -> None:
        """Runs the process until it is told to stop."""
        ray = import_ray()
        context = ray.get_runtime_context()
        tune_interpreter()
        node, host = context.get_node_id(), ray.util.get_node_ip_address()
        self._coordinator.introduce.remote(self._number, os.getpid(), node)
        print_on(CarriedLines(lambda lines: bool(ray.get(self._coordinator.printed.remote(lines)))))
        try:
            deployment: Deployment = unpack(self._packed)
            self._process = Process(deployment, self._number, self._task, node, host, self._tell)
        except Exception as problem:  # noqa: BLE001 - a user's operator may raise anything when it is made
            kind = type(problem).__name__ if isinstance(problem, ClonosError) else "ClonosError"
            self._tell(messages.Failed(self._number, kind, f"{self._task} cannot start: {problem}"))
            return
        self._built.set()
        self._process.start()
        self._process.wait()

    def deliver(self, order: int, message: bytes) -> None:
        """A message of the coordinator, the ``order``-th."""
        self._built.wait()
        self._in_order.take(order, messages.decode_to_process(message))

    def die(self) -> None:
        """A failure on order, where the coordinator cannot reach the process itself."""
        os.kill(os.getpid(), signal.SIGKILL)

    def _deliver(self, message: ToProcess) -> None:
        assert self._process is not None
        self._process.deliver(message)

    def _tell(self, message: ToCoordinator) -> None:
        with self._telling:
            self._coordinator.tell.remote(self._number, self._told, messages.encode(message))
            self._told += 1


@dataclass(frozen=True)
class JobOrder:
    """What the coordinator is to run, and how. The plan is ``of_vertex`` none: it makes no operators."""

    deployment: Deployment
    policy: JobPolicy
    cluster: Cluster
    checkpoints_kept: int
    kills: Sequence[tuple[int, TaskId]]
    code_digest: str


class ProcessPlace(NamedTuple):
    """A process of a task: whether it is the task now (else it stands by), and where."""

    task: TaskId
    active: bool
    pid: int
    node: str


class CoordinatorActor:
    """The coordinator of a job. ``run`` lasts as long as the job."""

    def __init__(self, packed_order: bytes, packed_deployments: Mapping[str, bytes]) -> None:
        """``packed_deployments``: what the processes of each vertex get."""
        self._order: JobOrder = unpack(packed_order)
        self._packed_deployments = packed_deployments
        self._inboxes: dict[int, InOrder[ToCoordinator]] = {}
        self._lock = threading.Lock()
        self._news = News()
        self._fresh = threading.Event()
        self._ready = threading.Event()
        self._loop: JobLoop | None = None
        self._platform: RayPlatform | None = None

    def run(self) -> EndJob | None:
        """How the job ended; None if it was interrupted."""
        try:
            store = self._order.deployment.open_store()
            machine = self._machine(store)
        except ClonosError as problem:
            return EndJob(type(problem).__name__, str(problem))
        ears = Ears(self._report, self._crashed, self._count)
        self._loop = JobLoop(machine, store, ears, self._order.checkpoints_kept, self._order.kills)
        self._platform = RayPlatform(self._packed_deployments, self._order.cluster, self._loop)
        self._ready.set()
        return self._loop.run(self._platform)

    def _machine(self, store: SnapshotStore) -> JobMachine:
        order = self._order
        latest = store.latest()
        return JobMachine(order.deployment.plan, order.policy, latest, store.open_generation(), order.code_digest)

    def tell(self, number: int, order: int, message: bytes) -> None:
        """A message of a process, its ``order``-th."""
        self._ready.wait()
        assert self._loop is not None
        with self._lock:
            inbox = self._inboxes.setdefault(number, InOrder(self._loop.put))
        inbox.take(order, messages.decode_to_coordinator(message))

    def introduce(self, number: int, pid: int, node: str) -> None:
        """A process says where it is."""
        self._ready.wait()
        assert self._platform is not None
        self._platform.introduce(number, pid, node)

    def processes(self) -> list[ProcessPlace]:
        """Where every living process runs that has said so."""
        self._ready.wait()
        assert self._loop is not None
        assert self._platform is not None
        return [
            ProcessPlace(task, active, *self._platform.places[number])
            for number, (task, active) in self._loop.processes().items()
            if number in self._platform.places
        ]

    def news(self) -> News:
        """What happened since the last call; waits a moment if nothing did."""
        self._fresh.wait(_NEWS_S_MAX)
        with self._lock:
            self._fresh.clear()
            news, self._news = self._news, News()
        return news

    def printed(self, lines: str) -> bool:
        """Lines of a print sink, for the terminal of the run. Whether there is room for them."""
        with self._lock:
            if sum(map(len, self._news.printed)) > _PRINTED_CHARACTERS_MAX:
                return False
            self._news.printed.append(lines)
        self._fresh.set()
        return True

    def interrupt(self) -> None:
        """Stops the job as it is, its last checkpoint intact."""
        self._ready.wait()
        assert self._loop is not None
        self._loop.put(Interrupt())

    def give_way(self) -> None:
        """Stops the job like ``interrupt``, for another run that goes on in its place."""
        self._ready.wait()
        assert self._loop is not None
        job = self._order.deployment.plan.job
        self._loop.put(Interrupt(EndJob("ClusterError", f"another run has taken the job {job!r} over")))

    def _report(self, at_us: int, report: Report) -> None:
        with self._lock:
            self._news.reports.append((at_us, report))
        self._fresh.set()

    def _crashed(self, at_us: int, task: TaskId) -> None:
        with self._lock:
            self._news.crashes.append((at_us, task))
        self._fresh.set()

    def _count(self, task: TaskId, number: int, counters: Mapping[str, Any]) -> None:
        with self._lock:
            self._news.counters[number] = (task, counters)


class RayPlatform:
    """Processes as actors, for the coordinator's loop."""

    def __init__(self, packed_deployments: Mapping[str, bytes], cluster: Cluster, loop: JobLoop) -> None:
        self._ray = import_ray()
        self._packed = {vertex: self._ray.put(packed) for vertex, packed in packed_deployments.items()}
        context = self._ray.get_runtime_context()
        self._node, self._me = context.get_node_id(), context.current_actor
        self._class = self._ray.remote(ProcessActor)
        self._options = {"max_concurrency": PROCESS_THREADS, **cluster.actor_options()}
        self._placement = Placement()
        self._loop = loop
        self._actors: dict[int, Any] = {}
        self._watched: dict[int, Any] = {}
        self._sent: dict[int, int] = {}
        self.places: dict[int, tuple[int, str]] = {}
        """Process id and node."""

    def start(self, number: int, task: TaskId) -> None:
        actor = self._class.options(scheduling_strategy=self._near(number, task), **self._options).remote(
            self._packed[task.vertex], number, task, self._me
        )
        self._actors[number], self._sent[number] = actor, 0
        watched = self._watched[number] = actor.watch.remote()
        watched.future().add_done_callback(self._ended(number))

    def _near(self, number: int, task: TaskId) -> Any:
        """Where Ray should put a process if it can."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        nodes = [node["NodeID"] for node in self._ray.nodes() if node["Alive"]]
        return NodeAffinitySchedulingStrategy(self._placement.place(number, task, nodes), soft=True)

    def introduce(self, number: int, pid: int, node: str) -> None:
        self.places[number] = pid, node

    def send(self, number: int, message: ToProcess) -> None:
        if actor := self._actors.get(number):
            actor.deliver.remote(self._sent[number], messages.encode(message))
            self._sent[number] += 1

    def kill(self, number: int) -> None:
        if actor := self._actors.pop(number, None):
            self._ray.kill(actor)

    def crash(self, number: int) -> None:
        pid, node = self.places.get(number, (0, ""))
        if node == self._node:
            os.kill(pid, signal.SIGKILL)
        elif actor := self._actors.get(number):
            actor.die.remote()

    def close(self, patience_s: float) -> None:
        watched = [self._watched[number] for number in self._actors]
        if watched:
            self._ray.wait(watched, num_returns=len(watched), timeout=patience_s)
        for number in list(self._actors):
            self.kill(number)

    def _ended(self, number: int) -> Callable[[Any], None]:
        def tell(future: Any) -> None:
            problem = future.exception()
            self._placement.remove(number)
            reason = str(problem).strip().split("\n")[0] if problem else "it has stopped"
            self._loop.put(ProcessDied(number, reason))

        return tell
