"""A world: one job, its coordinator and its processes, from the deployment to the end of the job.

Processes share no data except by messages. A killed process does nothing more, even if actions were scheduled for it.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field
from functools import partial
from weakref import WeakValueDictionary

from clonos_py.channel.frames import PassThrough
from clonos_py.checkpoint.store import SnapshotStore
from clonos_py.job.completed import CompletedCheckpoint
from clonos_py.job.events import EndJob, JobPolicy, StartProcess
from clonos_py.job.machine import JobMachine
from clonos_py.link.machine import LinkMachine
from clonos_py.model.calls import Answered, ServiceCall
from clonos_py.model.coordinator_events import CoordinatorEvent
from clonos_py.model.errors import ClonosError
from clonos_py.model.ids import TaskId
from clonos_py.model.plan import PhysicalPlan
from clonos_py.model.state import Chunk
from clonos_py.process.contract import ChannelLimits, Observed, SourceArrival
from clonos_py.protocols.known import protocol_of
from clonos_py.runtime.disk import keep_tail
from clonos_py.runtime.executors.link import LinkExecutor
from clonos_py.runtime.executors.low_priority import AtOnce
from clonos_py.runtime.executors.spill import SpillExecutor
from clonos_py.runtime.executors.storage import StorageExecutor
from clonos_py.runtime.executors.task import TaskExecutor
from clonos_py.runtime.spill import FrameShelf, MemoryShelf
from clonos_py.runtime.world.actions import Actions, Scheduler
from clonos_py.runtime.world.coordination import Coordination
from clonos_py.runtime.world.dispatcher import DirectDispatcher
from clonos_py.runtime.world.layers import Layers
from clonos_py.runtime.world.network import LocalConnections, Network
from clonos_py.runtime.world.process_environments import ProcessEnvironments
from clonos_py.runtime.world.processes import LocalProcess
from clonos_py.task.context import OperatorEnvironment
from clonos_py.task.machine import TaskMachine

Observer = Callable[[int, TaskId, Observed], None]


@dataclass
class WorldSettings:
    """The settings of a world."""

    policy: JobPolicy = field(default_factory=JobPolicy)
    limits: ChannelLimits = field(default_factory=ChannelLimits)
    linger_us: int = 10_000
    code_digest: str = ""
    events_max: int | None = None
    """The limit of actions, after which the run gives up: a job that hangs is a defect."""
    shelf: Callable[[int], FrameShelf] = lambda number: MemoryShelf()
    """Creates the shelf for spilled frames of a process, by its number."""
    standbys_per_process: int = 1
    """The number of standbys that may share a host process, until one of them is promoted."""
    standby_patience_us: int = 0
    """How long a standby that is to be started waits for a deployment or a recovery (``standby_starts.py``)."""
    call: Callable[[ServiceCall, Callable[[Answered], None]], None] | None = None
    """Makes a service call outside the world; the answer arrives through the scheduler. None: the environment answers
    after a delay."""
    outside: OutsideStorage | None = None
    """Does all storage work while the world goes on. None: the world does it, after a delay."""
    post: Callable[[Callable[[], None]], None] | None = None
    """Adds an action for the thread of the world; any thread may call it. None if no source has threads."""


@dataclass(frozen=True)
class OutsideStorage:
    """Storage work in another thread. ``do`` takes work for storage and sinks, which that thread does in order; the
    thread of the world performs the action that the work returns. ``open_store`` opens a store for one process.
    ``shared`` is used by that thread only: see ``Snapshots``."""

    do: Callable[[Callable[[], Callable[[], None]]], None]
    open_store: Callable[[], SnapshotStore]
    shared: MutableMapping[str, Chunk] = field(default_factory=WeakValueDictionary)


class World:
    """Runs one job to its end. ``hook`` is called before every action: fault injection, progress, interruption."""

    def __init__(
        self,
        plan: PhysicalPlan,
        store: SnapshotStore,
        scheduler: Scheduler,
        environment: Callable[[TaskId], OperatorEnvironment],
        settings: WorldSettings,
        listener: Callable[[int, CoordinatorEvent], None] = lambda time_us, event: None,
        observer: Observer = lambda time_us, task, observed: None,
        hook: Callable[[World], None] = lambda world: None,
        layers: Layers = Layers(),  # noqa: B008 - frozen
    ) -> None:
        self.plan, self.store, self.scheduler = plan, store, scheduler
        self._environment, self._settings, self._observer, self._layers = environment, settings, observer, layers
        self._codec = PassThrough()
        self.processes: dict[int, LocalProcess] = {}
        self.actions = Actions(scheduler, partial(hook, self), settings.events_max)
        direct = DirectDispatcher(self.processes, self.actions)
        self.dispatcher = direct.outer = layers.dispatcher(direct, self.processes)
        self.network = Network(self.processes, self.actions, self.dispatcher)
        self.ended: EndJob | None = None
        self.coordination = Coordination(
            plan,
            store,
            settings.policy,
            settings.code_digest,
            settings.standbys_per_process,
            settings.standby_patience_us,
            listener,
            self.actions,
            self.dispatcher,
            layers,
            self.processes,
            self._start,
            self.end_process,
            self.end,
            settings.outside.do if settings.outside is not None else None,
        )

    @property
    def now_us(self) -> int:
        return self.actions.now_us

    @property
    def actions_done(self) -> int:
        return self.actions.done

    @property
    def job(self) -> JobMachine:
        """The machine of the current coordinator."""
        return self.coordination.job

    def run(self, ahead: CompletedCheckpoint | None = None) -> EndJob:
        """Runs the job to its end and returns how it ended. ``ahead``: see ``Coordination.start_job``."""
        try:
            self.coordination.start_job(ahead)
            self.actions.run()
            assert self.ended is not None
            if self.ended.error is not None:
                self._keep_tails()
            for process in self.processes.values():
                process.task_executor.close()
                process.spill.close()
            return self.ended
        except BaseException:
            for process in self.processes.values():
                process.task_executor.abandon()
            raise

    def _keep_tails(self) -> None:
        """What processes do on Ray when they are told to stop: here the world ends before."""
        store = self.store if self._settings.outside is None else self._settings.outside.open_store()
        for process in self.processes.values():
            if (tail := process.link.tail(self.job.interval)) is not None:
                keep_tail(tail, store)

    def end(self, end: EndJob) -> None:
        """Ends the world: the job is over."""
        self.ended = end
        self.actions.stop()

    def request_stop(self) -> None:
        """The job takes a last checkpoint and ends."""
        self.coordination.request_stop()

    # ---- processes

    def _start(self, request: StartProcess) -> None:
        number = request.process
        if request.reuse is not None:
            self.end_process(request.reuse)
        try:
            process = self._assembled(number, request.task)
        except ClonosError as problem:
            self.end(EndJob(type(problem).__name__, str(problem), problem.traceback))
            return
        self.processes[number] = process
        started = partial(self.coordination.started, number)
        if request.reuse is None:
            self._layers.starting(process, self.coordination.host_process(number) == number, started)
        else:
            started()

    def _assembled(self, number: int, task: TaskId) -> LocalProcess:
        """Assembles a process. Raises ClonosError if an operator cannot be opened."""
        settings, layers, protocol = self._settings, self._layers, protocol_of(self.plan)
        link = LinkMachine(self.plan, task, number, self._codec, protocol.link, settings.limits, settings.policy.replay)
        of_operators = self._environment(task)
        machine = TaskMachine(self.plan, task, of_operators, protocol.task, settings.linger_us, settings.limits)
        process = LocalProcess(number, link, machine, of_operators, SpillExecutor(settings.shelf(number)))
        outside = settings.outside
        environments = ProcessEnvironments(
            process,
            self.actions,
            self.dispatcher,
            self.coordination.send_to_coordinator,
            partial(self._observe, task),
            self.end_process,
            settings.call,
            None if outside is None else outside.do,
        )
        if settings.post is not None:
            arrival = partial(self.dispatcher.offer, process, SourceArrival())
            machine.notify(partial(settings.post, arrival))
        connections = LocalConnections(self.network, self.actions, process)
        store = self.store if outside is None else outside.open_store()
        shared = None if outside is None else outside.shared
        storage = StorageExecutor(store, machine.committing, self.scheduler.now_us, AtOnce(), shared=shared)
        process.storage = layers.storage(process, storage)
        process.link_executor = LinkExecutor(
            link, environments.of_link(layers.connections(process, connections)), ClonosError
        )
        process.produced_before = environments.produced_before
        process.task_executor = TaskExecutor(machine, environments.of_task(self.scheduler.now_us))
        return process

    def _observe(self, task: TaskId, observed: Observed) -> None:
        self._observer(self.scheduler.now_us(), task, observed)

    def kill(self, number: int) -> None:
        """Kills a process now, as if by SIGKILL, and all others in its host process: connections break, and the
        platform reports the deaths after a while."""
        if self.end_process(number):
            self.coordination.notice_death(number, "killed")
            self.coordination.end_host_process(number, "killed", self.end_process)

    def end_process(self, number: int) -> bool:
        """Ends a process at once, without a message to the coordinator. False if no process has this number."""
        self._layers.ending(number)
        process = self.processes.pop(number, None)
        if process is None:
            return False
        process.alive = False
        process.task_executor.abandon()
        process.spill.close()
        for connection in sorted(process.connections):
            self.network.close(connection, process)
        return True
