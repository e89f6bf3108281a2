"""The actor of a job's coordinator. If it dies, the driver creates another, which takes over the running processes.

Control messages are calls of ``deliver``, here and in the process's actor. An actor with several threads does not keep
the order of calls, so each call carries a number (``InOrder``).
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from clonos_py.checkpoint.store import SnapshotStore
from clonos_py.job.checkpointing import JobSide
from clonos_py.job.events import EndJob, JobPolicy, StopRequested
from clonos_py.job.fleet import TaskProcess
from clonos_py.job.machine import JobMachine
from clonos_py.model import messages
from clonos_py.model.coordinator_events import CoordinatorEvent, StorageAwaited
from clonos_py.model.counters import ProcessCounters
from clonos_py.model.errors import CheckpointError, ClonosError
from clonos_py.model.ids import TaskId
from clonos_py.model.messages import ToCoordinator
from clonos_py.runtime.event_publisher import CoordinatorNews
from clonos_py.runtime.function_output import LineOrigin, WorkerLines
from clonos_py.runtime.pandas_import import defer_pandas
from clonos_py.runtime.ray.actor_registry import ProcessRequest, RegisteredProcess
from clonos_py.runtime.ray.cluster import Cluster
from clonos_py.runtime.ray.end_watchers import EndWatchers
from clonos_py.runtime.ray.job_loop import Interrupt, JobListeners, JobLoop
from clonos_py.runtime.ray.names import taken_over
from clonos_py.runtime.ray.ordering import InOrder
from clonos_py.runtime.ray.platform import RayPlatform
from clonos_py.runtime.ray.process import Deployment
from clonos_py.runtime.ray.shipping import unpack
from clonos_py.runtime.storage_waits import until_answered

T = TypeVar("T")
COORDINATOR_THREADS = 8
"""One thread runs the job, one answers ``next_update``, the others take messages."""
_UPDATE_WAIT_S_MAX = 0.25
_PRINTED_CHARACTERS_MAX = 1 << 20
"""The printed characters that may wait for the driver. More are refused until the driver has fetched these."""


@dataclass(frozen=True)
class JobSpec:
    """The job that a coordinator runs, and its settings. The plan has no operator code (``of_vertex`` with no name),
    because a coordinator creates no operators."""

    deployment: Deployment
    checkpointing: JobSide
    """Of the plan's checkpoint protocol."""
    policy: JobPolicy
    cluster: Cluster
    checkpoints_kept: int
    code_digest: str
    standbys_per_process: int


class CoordinatorStart(NamedTuple):
    """What a coordinator takes over. The first one (``term`` 0) takes over nothing, later ones the processes that may
    be running. ``prepared``: these processes have started ahead, and no coordinator has run the job before."""

    term: int
    processes: Mapping[int, RegisteredProcess]
    prepared: Sequence[TaskProcess]
    kills: Sequence[tuple[int, TaskId]]
    """Failures that ``--kill`` ordered, as (microseconds after deployment, task)."""
    deployed_us: int | None
    """When the job was deployed; None if it was not yet."""


class CoordinatorUpdate(NamedTuple):
    """The answer of the coordinator to the driver: news, processes to create, and processes that need not be kept.
    ``gives_way``: another run takes over, so this coordinator gets no successor."""

    news: CoordinatorNews
    requests: Sequence[ProcessRequest]
    dismissed: Sequence[int]
    gives_way: bool


class ProcessPlace(NamedTuple):
    """A process of a task and its place. ``active``: it has the task's role now; else it is a standby."""

    task: TaskId
    active: bool
    pid: int
    node: str


class CoordinatorActor:
    """The coordinator of a job. ``run`` lasts as long as the job."""

    def __init__(self, packed_spec: bytes) -> None:
        defer_pandas()
        self._spec: JobSpec = unpack(packed_spec)
        self._inboxes: dict[int, InOrder[ToCoordinator]] = {}
        self._lock = threading.Lock()
        self._news = CoordinatorNews()
        self._requests: list[ProcessRequest] = []
        self._dismissed: list[int] = []
        self._runs = False
        self._gives_way = False
        self._interrupted = False
        self._fresh = threading.Event()
        self._ended = threading.Event()
        """The job has ended: calls of ``next_update`` wait no longer."""
        self._end: EndJob | None = None
        self._watchers = EndWatchers()
        self._ready = threading.Event()
        self._loop: JobLoop | None = None
        self._platform: RayPlatform | None = None

    def run(self, start: CoordinatorStart) -> EndJob | None:
        """Runs the job, and returns how it ended; None if it was interrupted."""
        self._runs = True
        start = CoordinatorStart(*start)
        try:
            store = self._spec.deployment.open_store()
            machine = self._machine(store, start.term)
        except ClonosError as problem:
            return None if self._interrupted else EndJob(type(problem).__name__, str(problem))
        listeners, prepared = JobListeners(self._report, self._crashed, self._count), start.prepared
        takes_over = start.term and not prepared
        roster = {number: process.task for number, process in start.processes.items()} if takes_over else None
        kept, clock = self._spec.checkpoints_kept, self._spec.deployment.clock.here()
        self._loop = JobLoop(machine, store, listeners, kept, start.kills, start.deployed_us, roster, clock, prepared)
        self._platform = RayPlatform(
            self._request_process,
            self._dismiss,
            self._loop.put,
            start.term,
            self._spec.standbys_per_process,
            self._spec.deployment.scratch,
        )
        self._platform.adopt(start.processes)
        self._ready.set()
        try:
            self._end = self._loop.run(self._platform)
            return self._end
        finally:
            self._ended.set()
            self._fresh.set()

    def runs(self) -> bool:
        """Whether it runs its job, or has. Before it waits for the end of the run that the job follows."""
        return self._runs

    def _machine(self, store: SnapshotStore, term: int) -> JobMachine:
        """Opens the generation, then reads the last checkpoint: from then on it stays the last one, even if a lost
        coordinator still writes (D11). The successor of a lost coordinator waits for storage, as tasks go on
        meanwhile. So does that of a run before, which has stopped for it."""

        def answered(ask: Callable[[], T]) -> T:
            return until_answered(ask, self._storage_awaited, lambda: not term or self._interrupted)

        spec, generation = self._spec, answered(store.open_generation)
        plan, side = spec.deployment.plan, spec.checkpointing
        return JobMachine(plan, spec.policy, side, answered(store.latest), generation, spec.code_digest)

    def _storage_awaited(self, problem: str) -> None:
        self._report(self._spec.deployment.clock.here().now_us(), StorageAwaited(None, problem))

    def deliver(self, number: int, sequence: int, message: bytes) -> None:
        """Takes a message of a process. ``sequence``: the number of the message, from 0."""
        self._ready.wait()
        assert self._loop is not None
        assert self._platform is not None
        self._platform.seen(number)
        with self._lock:
            inbox = self._inboxes.setdefault(number, InOrder(self._loop.put))
        inbox.take(sequence, messages.decode_to_coordinator(message))

    def introduce(self, number: int, pid: int, thread: int, node: str) -> None:
        """Takes the place of a process. ``thread``: see ``ProcessHandle.of``."""
        self._ready.wait()
        assert self._platform is not None
        self._platform.introduce(number, pid, thread, node)

    def neighbour_died(self, number: int) -> None:
        """A process on another node has died, says one beside it."""
        self._ready.wait()
        assert self._platform is not None
        self._platform.on_died(number)

    def already_left(self, number: int) -> None:
        """A process that was taken over had already left, because the lost coordinator had dismissed it."""
        self._ready.wait()
        assert self._platform is not None
        self._platform.already_left(number)

    def join(self, number: int, actor: Any) -> None:
        """The driver has created a requested process."""
        self._ready.wait()
        assert self._platform is not None
        self._platform.join(number, actor)

    def pid(self) -> int:
        """The process id of this coordinator."""
        return os.getpid()

    def die(self) -> None:
        """Ends this process, for a run that ends when Ray is gone."""
        os.kill(os.getpid(), signal.SIGKILL)

    def processes(self) -> list[ProcessPlace]:
        """The places of all running processes that have reported theirs."""
        self._ready.wait()
        assert self._loop is not None
        assert self._platform is not None
        return [
            ProcessPlace(task, active, *self._platform.places[number])
            for number, (task, active, _) in self._loop.processes().items()
            if number in self._platform.places
        ]

    def next_update(self) -> CoordinatorUpdate:
        """Returns what happened since the last call; waits a moment if nothing did."""
        self._fresh.wait(_UPDATE_WAIT_S_MAX)
        with self._lock:
            if not self._ended.is_set():
                self._fresh.clear()
            update = CoordinatorUpdate(self._news, self._requests, self._dismissed, self._gives_way)
            self._news, self._requests, self._dismissed = CoordinatorNews(), [], []
        return update

    def printed(self, number: int, lines: str, origin: LineOrigin) -> bool:
        """Takes lines of a process for the terminal of the run. False if there is no room now: the process has to send
        them again. Lines of a process that is no longer part of the job are dropped."""
        places = self._loop.processes() if self._loop is not None else {}
        if self._loop is not None and number not in places:
            return True
        with self._lock:
            waiting = [*self._news.printed, *(written.lines for written in self._news.worker_lines)]
            if sum(map(len, waiting)) > _PRINTED_CHARACTERS_MAX:
                return False
            if origin is LineOrigin.SINK:
                self._news.printed.append(lines)
            elif number in places:
                found = places[number]
                self._news.worker_lines.append(WorkerLines(found.task, lines, origin, found.attempt))
        self._fresh.set()
        return True

    def savepoint(self, name: str) -> tuple[int, str | None]:
        """Keeps the last complete checkpoint under a name. Returns its number, and why it could not be kept."""
        self._ready.wait()
        assert self._loop is not None
        try:
            return self._loop.savepoint(name).checkpoint, None
        except CheckpointError as problem:
            return 0, str(problem)

    def stop(self, watcher: str | None = None) -> None:
        """Has the job take a last checkpoint and end. ``watcher``: the name of a caller that then waits for ``end``,
        and calls ``unwatch`` when it waits no longer."""
        if watcher is not None:
            self._watchers.add(watcher)
        self._put(StopRequested())

    def interrupt(self) -> None:
        """Stops the job without another checkpoint. The last one stays intact."""
        self._interrupted = True
        self._put(Interrupt())

    def end(self) -> EndJob | None:
        """Waits a moment for the end of the job; returns how it ended, None if it goes on."""
        if not self._ended.wait(_UPDATE_WAIT_S_MAX):
            return None
        return self._end or EndJob("Interrupted", "the run was interrupted")

    def unwatch(self, watcher: str) -> None:
        """A caller of ``stop`` has read how the job ended, or waits for it no longer."""
        self._watchers.remove(watcher)

    def await_watchers(self, timeout_s: float) -> bool:
        """Waits until no caller of ``stop`` waits for the end, for up to ``timeout_s`` seconds. Returns whether there
        was one."""
        self._watchers.await_none(timeout_s)
        return self._watchers.any_yet

    def give_way(self) -> None:
        """Stops the job like ``interrupt``, for another run that takes it over."""
        self._gives_way = self._interrupted = True
        self._fresh.set()
        self._put(Interrupt(EndJob("ClusterError", taken_over(self._spec.deployment.plan.job))))

    def _put(self, event: StopRequested | Interrupt) -> None:
        self._ready.wait()
        assert self._loop is not None
        self._loop.put(event)

    def _request_process(self, request: ProcessRequest) -> None:
        with self._lock:
            self._requests.append(request)
        self._fresh.set()

    def _dismiss(self, number: int) -> None:
        with self._lock:
            self._dismissed.append(number)

    def _report(self, at_us: int, event: CoordinatorEvent) -> None:
        with self._lock:
            self._news.events.append((at_us, event))
        self._fresh.set()

    def _crashed(self, at_us: int, task: TaskId) -> None:
        with self._lock:
            self._news.crashes.append((at_us, task))
        self._fresh.set()

    def _count(self, task: TaskId, number: int, counters: ProcessCounters) -> None:
        with self._lock:
            self._news.counters[number] = (task, counters)
