"""All processes of a job in one thread: the drivers ``sim`` and ``local`` (D8).

The world executes the machines' instructions as scheduled actions. What differs between the two drivers is the
scheduler (virtual or real time) and the delays between an instruction and its effect. Every channel of communication
is FIFO, as sockets and queues are; across channels the delays decide. Nothing is shared between processes but what
travels in messages, and a killed process does nothing more, whatever was scheduled for it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from clonos_py.channel.frames import Frame, PassThrough
from clonos_py.checkpoint.store import SnapshotStore
from clonos_py.job.events import EndJob, JobPolicy, Report
from clonos_py.model.calls import Answered, Call
from clonos_py.model.errors import ClonosError
from clonos_py.model.ids import TaskId
from clonos_py.model.plan import PhysicalPlan
from clonos_py.model.times import MAX_TIME
from clonos_py.runtime.coordination import Coordination
from clonos_py.runtime.executors.low_priority import AtOnce
from clonos_py.runtime.executors.spill import SpillExecutor
from clonos_py.runtime.executors.storage import StorageExecutor, StorageWork
from clonos_py.runtime.processes import Connection, LocalProcess
from clonos_py.runtime.spill import FrameShelf, MemoryShelf
from clonos_py.services.asking import answered
from clonos_py.task import instructions as io
from clonos_py.task.context import Ports
from clonos_py.task.events import Observed, TaskState
from clonos_py.task.link import LinkMachine
from clonos_py.task.machine import TaskMachine
from clonos_py.task.pressure import LinkLimits


class Scheduler(Protocol):
    """Time, and the delays that the world's actions take."""

    def now_us(self) -> int: ...

    def wait_until(self, time_us: int) -> None:
        """Returns when ``time_us`` has come: virtual time jumps, real time sleeps."""
        ...

    def delay_us(self, kind: str) -> int:
        """How long an action of this kind takes: network, queue, control, disk, start, step, detect, call."""
        ...

    def arrived(self) -> Sequence[Callable[[], None]]:
        """What has come from outside of the world since the last look; waiting ends when something comes."""
        ...


@dataclass
class Settings:
    """What a world needs to know besides the plan."""

    policy: JobPolicy = field(default_factory=JobPolicy)
    limits: LinkLimits = field(default_factory=LinkLimits)
    linger_us: int = 10_000
    code_digest: str = ""
    events_max: int | None = None
    """Give up after so many actions: a job that hangs is a defect."""
    shelf: Callable[[int], FrameShelf] = lambda number: MemoryShelf()
    """Where a process, by its number, puts retained frames that are not to stay in memory."""
    standbys_per_process: int = 1
    """As many standbys may be one for the operating system, until one of them is needed."""
    call: Callable[[Call, Callable[[Answered], None]], None] | None = None
    """Makes a call outside of the world, whose scheduler has the answer then. None: the ports answer, after a delay."""


class World(Coordination):
    """Runs one job to its end. ``hook`` is called before every action: fault injection, progress, interruption."""

    def __init__(
        self,
        plan: PhysicalPlan,
        store: SnapshotStore,
        scheduler: Scheduler,
        ports: Callable[[TaskId], Ports],
        settings: Settings,
        listener: Callable[[int, Report], None] = lambda time_us, report: None,
        observer: Callable[[int, TaskId, Observed], None] = lambda time_us, task, observed: None,
        hook: Callable[[World], None] | None = None,
    ) -> None:
        self.plan, self.store, self.scheduler = plan, store, scheduler
        self.processes: dict[int, LocalProcess] = {}
        self._ports, self._settings = ports, settings
        self._observer, self._hook = observer, hook
        self._codec = PassThrough()
        self._actions: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        self._latest: dict[Hashable, int] = {}
        self._connections: dict[int, Connection] = {}
        self.actions_done = 0
        self.ended: EndJob | None = None
        self.now_us = scheduler.now_us()
        super().__init__(settings.policy, settings.code_digest, listener, settings.standbys_per_process)

    # ---- scheduling

    def at(self, time_us: int, action: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._actions, (time_us, self._count, action))

    def after(self, kind: str, queue: Hashable, action: Callable[[], None]) -> None:
        """Schedules ``action`` after a delay of ``kind``, behind everything already in ``queue``."""
        time_us = max(self.now_us + self.scheduler.delay_us(kind), self._latest.get(queue, 0))
        self._latest[queue] = time_us
        self.at(time_us, action)

    def run(self) -> EndJob:
        """Runs the job to its end and says how it ended."""
        self._coordinate(self.job.start(self.now_us))
        while self.ended is None:
            self._next()
        for process in self.processes.values():
            if process.alive:
                process.machine.close()
                process.spill.close()
        return self.ended

    def _next(self) -> None:
        for arrived in self.scheduler.arrived():
            arrived()
        if not self._actions:
            raise AssertionError("nothing is left to happen and the job has not ended")
        if self._actions[0][0] > self.now_us:
            self.scheduler.wait_until(self._actions[0][0])
        self.now_us = max(self.now_us, self.scheduler.now_us())
        if self._actions[0][0] > self.now_us:
            return
        action = heapq.heappop(self._actions)[2]
        self.actions_done += 1
        limit = self._settings.events_max
        if limit is not None and self.actions_done > limit:
            raise AssertionError(f"the job has not ended after {limit} actions")
        if self._hook is not None:
            self._hook(self)
        action()

    # ---- processes

    def _start(self, number: int, task: TaskId) -> None:
        world = self._settings
        link = LinkMachine(self.plan, task, number, self._codec, world.limits, world.policy.replay)
        try:
            ports = self._ports(task)
            machine = TaskMachine(self.plan, task, ports, world.linger_us, world.limits)
        except ClonosError as problem:
            self.ended = EndJob(type(problem).__name__, str(problem), problem.traceback)
            return
        storage = StorageExecutor(self.store, machine.sinks, self.scheduler.now_us, AtOnce())
        spill = SpillExecutor(world.shelf(number))
        self.processes[number] = LocalProcess(number, task, link, machine, ports, storage, spill)
        self._started(number)

    def kill(self, number: int) -> None:
        """The process dies now, as by SIGKILL, and all others in its host process with it: connections break, and the
        platform notices after a while."""
        if self._end_process(number):
            self.notice_death(number, "killed")
            self._end_host_process(number, "killed", self._end_process)

    def _end_process(self, number: int) -> bool:
        process = self.processes.pop(number, None)
        if process is None:
            return False
        process.alive = False
        process.spill.close()
        for connection in sorted(process.connections):
            self._break(connection, process)
        return True

    def _break(self, connection: int, by: LocalProcess) -> None:
        """One end has closed: the other hears of it, after what was sent before."""
        link = self._connections.pop(connection, None)
        if link is None:
            return
        link.closed = True
        other = link.other(by)
        other.connections.discard(connection)
        by.connections.discard(connection)
        number = other.number
        self.after("network", (connection, by.number), lambda: self._link_event(number, io.Lost(connection)))

    def _link_event(self, number: int, event: Any) -> None:
        process = self.processes.get(number)
        if process is None:
            return
        try:
            instructions = process.link.handle(event)
        except ClonosError as problem:
            instructions = process.link.fail(problem)
        for instruction in instructions:
            self._obey(process, instruction)

    def _obey(self, process: LocalProcess, instruction: io.Instruction) -> None:
        number = process.number
        match instruction:
            case io.Hand(item):
                self.after("queue", (number, "to task"), lambda: self._offer(process, item))
            case io.Tell(message):
                self.tell(number, message)
            case io.SendFrame():
                self._send_frame(process, instruction)
            case io.SendAck(connection, next_seq, held, rows_wanted):
                self._transmit(process, connection, io.Acknowledged(connection, next_seq, held, rows_wanted))
            case io.Connect():
                self.after(
                    "network", (number, "connect", instruction.input), lambda: self._connect(process, instruction)
                )
            case io.Disconnect(connection):
                self._break(connection, process)
            case io.Load() | io.Persist():
                self.after("disk", (number, "disk"), lambda: self._use_sinks(process, instruction))
            case io.WriteFrames() | io.ReadFrames() | io.FreeFrames():
                self.after("disk", (number, "spill"), lambda: self._spill(process, instruction))
            case io.Commit() | io.ClaimOutput() | io.WriteOutput() | io.SettleOutput():
                self.after("disk", (number, "disk"), lambda: self._use_sinks(process, instruction))
            case io.Shutdown():
                self._end_process(number)

    # ---- the network

    def _connect(self, process: LocalProcess, wish: io.Connect) -> None:
        if not process.alive:
            return
        sender = self.processes.get(int(wish.address))
        if sender is None:
            lost = io.Lost(-1, wish.input, wish.hello, "refused")
            self.after("start", (process.number, "connect", wish.input), lambda: self._link_event(process.number, lost))
            return
        self._count += 1
        connection = self._count
        self._connections[connection] = Connection(process, sender)
        process.connections.add(connection)
        sender.connections.add(connection)
        self._link_event(process.number, io.Connected(wish.input, connection, wish.hello))
        self._transmit(process, connection, io.Subscribed(connection, wish.hello))

    def _transmit(self, process: LocalProcess, connection: int, event: Any) -> None:
        link = self._connections.get(connection)
        if link is None:
            return
        other = link.other(process)

        def deliver() -> None:
            if not link.closed or not (process.alive or link.lossy):
                self._link_event(other.number, event)

        self.after("network", (connection, process.number), deliver)

    def _send_frame(self, process: LocalProcess, wish: io.SendFrame) -> None:
        h = wish.header
        frame = Frame(h.seq, h.kind, h.epoch, h.watermark, h.idle, h.checkpoint, wish.body, h.marker_us)
        self._transmit(process, wish.connection, io.Arrived(wish.connection, h, frame))

    # ---- storage

    def _spill(self, process: LocalProcess, wish: io.Spilling) -> None:
        if process.alive:
            for event in process.spill.carry_out(wish):
                self._link_event(process.number, event)

    def _use_sinks(self, process: LocalProcess, wish: StorageWork) -> None:
        if not process.alive:
            return
        try:
            (event,) = process.storage.carry_out(wish)
        except ClonosError as problem:
            self._fail(process, problem)
            return
        self._link_event(process.number, event)

    def _fail(self, process: LocalProcess, problem: ClonosError) -> None:
        if process.alive:
            for instruction in process.link.fail(problem):
                self._obey(process, instruction)

    # ---- tasks

    def _offer(self, process: LocalProcess, item: Any) -> None:
        if not process.alive or process.link.state is TaskState.FAILED:
            return
        try:
            process.machine.offer(item)
        except ClonosError as problem:
            self._fail(process, problem)
            return
        self._plan_step(process, self.now_us + self.scheduler.delay_us("step"))

    def _plan_step(self, process: LocalProcess, at_us: int) -> None:
        process.step_token += 1
        token = process.step_token
        self.at(at_us, lambda: self._step(process, token))

    def _step(self, process: LocalProcess, token: int) -> None:
        if not process.alive or token != process.step_token or process.link.state is TaskState.FAILED:
            return
        try:
            outcome = process.machine.step(self.now_us)
        except ClonosError as problem:
            self._fail(process, problem)
            return
        for event in outcome.events:
            if isinstance(event, Observed):
                self._observer(self.scheduler.now_us(), process.task, process.link.observed(event))
            else:
                self._from_task(process, event)
        for call in outcome.calls:
            self._call(process, call)
        if outcome.wake_us is None:
            self._plan_step(process, self.now_us + self.scheduler.delay_us("step"))
        elif outcome.wake_us < MAX_TIME:
            self._plan_step(process, max(outcome.wake_us, self.now_us + 1))

    def _call(self, process: LocalProcess, call: Call) -> None:
        if self._settings.call is not None:
            self._settings.call(call, partial(self._offer, process))
        else:
            at_us = self.now_us + self.scheduler.delay_us("call")
            self.at(at_us, lambda: self._offer(process, answered(process.ports.service, call)))

    def _from_task(self, process: LocalProcess, event: Any) -> None:
        self.after("queue", (process.number, "from task"), lambda: self._link_event(process.number, event))
