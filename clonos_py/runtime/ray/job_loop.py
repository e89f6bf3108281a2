"""The coordinator's loop: feeds the job's machine with messages, deaths and time, and carries out what it asks (D9).

Where processes live is the ``Platform``'s business; Ray is one, threads of a test are another.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Protocol

from clonos_py.checkpoint.store import SnapshotStore
from clonos_py.job.events import (
    AtWork,
    DismissProcess,
    EndJob,
    JobEvent,
    JobInstruction,
    KillProcess,
    ManifestWritten,
    OpenGeneration,
    ProcessDied,
    Report,
    ReportKind,
    Send,
    StartProcess,
    WriteManifest,
)
from clonos_py.job.machine import JobMachine
from clonos_py.model.errors import CheckpointError
from clonos_py.model.ids import TaskId
from clonos_py.model.messages import Pong, Promote, ToCoordinator, ToProcess
from clonos_py.model.snapshots import Manifest
from clonos_py.runtime.clock import SteadyClock
from clonos_py.runtime.disk import retire, write_manifest
from clonos_py.runtime.ray.busy import Busy
from clonos_py.runtime.ray.restarts import Restarts
from clonos_py.runtime.ray.serial_executor import SerialExecutor

_WAIT_S_MAX = 1.0
_STOP_S_MAX = 2.0
_KILL_AGAIN_US = 50_000
"""A failure on order whose task is dead already is tried again after so long: its replacement is to fail then."""
_STORAGE_S_MAX = 60.0
"""Storage that opens no generation within this time does not answer."""


class Platform(Protocol):
    """Starts and ends processes and carries messages to them, in order. Deaths are put into the loop as events."""

    def start(self, number: int, task: TaskId, shares: bool) -> None:
        """``shares``: it may be one with standbys of other tasks, for the operating system."""
        ...

    def send(self, number: int, message: ToProcess) -> None:
        """Messages to a process that is gone are dropped."""
        ...

    def dismiss(self, number: int) -> None:
        """Has a process stop; who shares its host process stays."""
        ...

    def kill(self, number: int) -> None:
        """Ends a process for good; its death need not be told, but the deaths of those who shared its host process."""
        ...

    def crash(self, number: int) -> bool:
        """A failure on order: SIGKILL, to be noticed like any other. False if the process is dead already."""
        ...

    def cpu_us(self, number: int) -> int | None:
        """The processor time that a process has used; None where that cannot be seen."""
        ...

    def close(self, patience_s: float) -> None:
        """Ends all processes that are left; those that were told to stop may take so long to do it."""
        ...


@dataclass(frozen=True)
class JobPorts:
    """Who is told of what happens; times are microseconds of the run's clock."""

    report: Callable[[int, Report], None]
    crashed: Callable[[int, TaskId], None]
    """A failure on order has been carried out."""
    count: Callable[[TaskId, int, Mapping[str, Any]], None]
    """A process of a task (its number) tells its counters, twice a second."""


@dataclass(frozen=True)
class Interrupt:
    """Somebody wants the job to stop. ``end`` is how it ends then, None if whoever runs it knows."""

    end: EndJob | None = None


class JobLoop:
    """Runs one JobMachine to its end. ``put`` may be called by any thread."""

    def __init__(
        self,
        machine: JobMachine,
        store: SnapshotStore,
        ports: JobPorts,
        checkpoints_kept: int = 2,
        kills: Sequence[tuple[int, TaskId]] = (),
        deployed_us: int | None = None,
        roster: Mapping[int, TaskId] | None = None,
        clock: SteadyClock | None = None,
    ) -> None:
        """``kills``: tasks to crash, each so many microseconds after the job is deployed, or was: ``deployed_us``. With
        a ``roster`` of processes that may be alive it goes on in the place of a lost coordinator.
        ``clock``: that of the run."""
        self._clock = clock or SteadyClock.start()
        self._machine, self._store, self._ports = machine, store, ports
        self._checkpoints_kept = checkpoints_kept
        self._orders = sorted(kills)
        self._due: list[tuple[int, TaskId]] = []
        if deployed_us is not None:
            self._schedule_kills(deployed_us)
        self._inbox: SimpleQueue[ToCoordinator | JobEvent | Interrupt] = SimpleQueue()
        self._roster = roster
        self._tasks: dict[int, TaskId] = dict(roster or {})
        self._owners: dict[TaskId, int] = {}
        self._restarts = Restarts()
        self._busy = Busy(2 * machine.heartbeat_us)
        self._writer = SerialExecutor("manifests")
        self._end: EndJob | None = None

    def put(self, event: ToCoordinator | JobEvent | Interrupt) -> None:
        self._inbox.put(event)

    def processes(self) -> dict[int, tuple[TaskId, bool]]:
        """By number: its task, and whether it is that task now. May be called by any thread."""
        owners = set(self._owners.values())
        return {number: (task, number in owners) for number, task in list(self._tasks.items())}

    def run(self, platform: Platform) -> EndJob | None:
        """Until the job has ended (and how) or was interrupted (as the interrupt says). All its processes are gone
        then."""
        if self._roster is None:
            self._perform(self._machine.start(self._clock.now_us()), platform)
        else:
            self._perform(self._machine.take_over(self._roster, self._clock.now_us()), platform)
        interrupted = False
        while self._end is None and not interrupted:
            event = self._next()
            if isinstance(event, Interrupt):
                interrupted, self._end = True, event.end
            elif event is None:
                self._pass_time(platform)
            else:
                self._react(event, platform)
        self._writer.stop(_STOP_S_MAX)
        platform.close(0.0 if interrupted else _STOP_S_MAX)
        return self._end

    def _next(self) -> ToCoordinator | JobEvent | Interrupt | None:
        """The next event, or None when time is up for something else. Events that wait come first."""
        with suppress(Empty):
            return self._inbox.get_nowait()
        times = [self._machine.wake_us, self._restarts.due_us, self._due[0][0] if self._due else None]
        due_us = min(time_us for time_us in times if time_us is not None)
        wait_s = min(max(0.0, (due_us - self._clock.now_us()) / 1e6), _WAIT_S_MAX)
        with suppress(Empty):
            return self._inbox.get(timeout=wait_s)
        return None

    def _pass_time(self, platform: Platform) -> None:
        while self._due and self._due[0][0] <= self._clock.now_us():
            self._crash(heapq.heappop(self._due)[1], platform)
        self._start(self._restarts.on_time(self._clock.now_us()), platform)
        for number in self._busy.at_work(self._clock.now_us(), platform.cpu_us):
            self._perform(self._machine.handle(AtWork(number), self._clock.now_us()), platform)
        if self._machine.wake_us <= self._clock.now_us():
            self._perform(self._machine.tick(self._clock.now_us()), platform)

    def _crash(self, task: TaskId, platform: Platform) -> None:
        now_us, owner = self._clock.now_us(), self._owners.get(task)
        if owner is not None and platform.crash(owner):
            self._ports.crashed(now_us, task)
        else:
            heapq.heappush(self._due, (now_us + _KILL_AGAIN_US, task))

    def _react(self, event: ToCoordinator | JobEvent, platform: Platform) -> None:
        process = getattr(event, "process", None)
        if isinstance(event, ProcessDied):
            self._forget(event.process)
        elif process in self._tasks:
            self._busy.heard(process, self._clock.now_us())
            if isinstance(event, Pong):
                self._ports.count(self._tasks[process], process, event.counters)
        self._perform(self._machine.handle(event, self._clock.now_us()), platform)

    def _perform(self, instructions: Sequence[JobInstruction], platform: Platform) -> None:
        for instruction in instructions:
            match instruction:
                case StartProcess(number, task, _):
                    self._tasks[number] = task
                    self._start(self._restarts.on_start(instruction, self._clock.now_us()), platform)
                case Send(number, message):
                    if isinstance(message, Promote):
                        self._owners[self._tasks[number]] = number
                        self._restarts.on_promoted(self._tasks[number])
                    platform.send(number, message)
                case DismissProcess(number):
                    platform.dismiss(number)
                    self._forget(number)
                case KillProcess(number):
                    platform.kill(number)
                    self._forget(number)
                case WriteManifest(manifest):
                    self._writer.submit(partial(self._write, manifest))
                case OpenGeneration(generation):
                    self._open_generation(generation)
                case Report():
                    self._tell(instruction)
                    self._start(self._restarts.on_report(instruction), platform)
                case EndJob():
                    self._end = instruction

    def _forget(self, number: int) -> None:
        """A process is gone, or will be soon: what it still says counts no more."""
        self._tasks.pop(number, None)
        self._busy.forget(number)

    def _open_generation(self, generation: int) -> None:
        """A coordinator that has been replaced without noticing ends here."""
        try:
            self._writer.submit(partial(self._store.open_generation, generation - 1)).result(_STORAGE_S_MAX)
        except TimeoutError:
            self._end = EndJob("CheckpointError", f"checkpoint storage has not answered for {_STORAGE_S_MAX:g} s")
        except CheckpointError as problem:
            self._end = EndJob(type(problem).__name__, str(problem))

    def _start(self, wishes: Sequence[StartProcess], platform: Platform) -> None:
        for wish in wishes:
            if wish.process in self._tasks:
                platform.start(wish.process, wish.task, wish.shares)

    def _tell(self, report: Report) -> None:
        now_us = self._clock.now_us()
        if report.what is ReportKind.DEPLOYED:
            self._schedule_kills(now_us)
        if report.what is ReportKind.COORDINATOR_REPLACED:
            self._owners.update(self._machine.owners)
        self._ports.report(now_us, report)

    def _schedule_kills(self, deployed_us: int) -> None:
        for after_us, task in self._orders:
            heapq.heappush(self._due, (deployed_us + after_us, task))
        self._orders = []

    def _write(self, manifest: Manifest) -> None:
        """On the writer's thread: heartbeats go on meanwhile."""
        event = write_manifest(manifest, self._store)
        self.put(event)
        if isinstance(event, ManifestWritten):
            self.put(retire(self._store, self._checkpoints_kept))
