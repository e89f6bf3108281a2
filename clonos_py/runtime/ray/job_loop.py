"""The coordinator's loop: feeds the job's executor with messages, deaths and time (D9).

A ``Platform`` runs the processes: Ray is one, the threads of a test are another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from typing import NamedTuple

from clonos_py.checkpoint.store import SnapshotStore
from clonos_py.job.events import EndJob, JobEvent, ProcessBusy
from clonos_py.job.fleet import Role, TaskProcess
from clonos_py.job.machine import JobMachine
from clonos_py.model.coordinator_events import CoordinatorEvent, Deployed
from clonos_py.model.counters import ProcessCounters
from clonos_py.model.errors import CheckpointError
from clonos_py.model.ids import Attempt, TaskId
from clonos_py.model.messages import Pong, ToCoordinator
from clonos_py.model.snapshots import Manifest
from clonos_py.runtime.clock import SteadyClock
from clonos_py.runtime.executors.job import JobExecutor
from clonos_py.runtime.planned_kills import PlannedKills
from clonos_py.runtime.ray.busy import Busy
from clonos_py.runtime.ray.job_environment import Platform, PlatformEnvironment

_WAIT_S_MAX = 1.0
_STOP_S_MAX = 2.0


@dataclass(frozen=True)
class JobListeners:
    """Callbacks for what happens in a job. Times are microseconds of the run's clock."""

    report: Callable[[int, CoordinatorEvent], None]
    crashed: Callable[[int, TaskId], None]
    """An ordered failure has been carried out."""
    count: Callable[[TaskId, int, ProcessCounters], None]
    """A process (its task and number) has sent its counters, with an answer to a heartbeat."""


class ProcessRole(NamedTuple):
    """What a process is: its task, whether it is active, and the attempt that it is; None if it is a standby."""

    task: TaskId
    active: bool
    attempt: Attempt | None


@dataclass(frozen=True)
class Interrupt:
    """Asks the loop to stop. ``end``: what ``run`` then returns."""

    end: EndJob | None = None


class JobLoop:
    """Runs one JobMachine to its end. ``put`` may be called by any thread."""

    def __init__(
        self,
        machine: JobMachine,
        store: SnapshotStore,
        listeners: JobListeners,
        checkpoints_kept: int = 2,
        kills: Sequence[tuple[int, TaskId]] = (),
        deployed_us: int | None = None,
        roster: Mapping[int, TaskId] | None = None,
        clock: SteadyClock | None = None,
        prepared: Sequence[TaskProcess] = (),
    ) -> None:
        """``kills``: tasks to crash, as (microseconds after deployment, task). ``deployed_us``: when the job was
        deployed, if it was already. ``roster``: processes that may be running; the loop then takes over from a lost
        coordinator. ``clock``: the run's clock. ``prepared``: processes that were started ahead of the deployment."""
        self._clock = clock or SteadyClock.start()
        self._machine, self._store, self._listeners = machine, store, listeners
        self._checkpoints_kept = checkpoints_kept
        self._kills = PlannedKills(kills, deployed_us)
        self._inbox: SimpleQueue[ToCoordinator | JobEvent | Interrupt] = SimpleQueue()
        self._roster, self._prepared = roster, prepared
        self._busy = Busy(2 * machine.heartbeat_us)
        self._environment: PlatformEnvironment | None = None
        self._interrupt: Interrupt | None = None

    def put(self, event: ToCoordinator | JobEvent | Interrupt) -> None:
        if isinstance(event, Interrupt):
            self._interrupt = event
        self._inbox.put(event)

    def savepoint(self, name: str) -> Manifest:
        """Keeps the last complete checkpoint under a name, and returns its manifest. Raises CheckpointError. May be
        called by any thread."""
        if self._environment is None:
            raise CheckpointError("the job has not begun yet: ask again soon")
        return self._environment.savepoint(name).result()

    def processes(self) -> dict[int, ProcessRole]:
        """All processes, by number. May be called by any thread."""
        processes = list(self._machine.processes.values())
        return {p.number: ProcessRole(p.task, p.role is not Role.STANDBY, p.attempt) for p in processes}

    def run(self, platform: Platform) -> EndJob | None:
        """Runs until the job has ended or is interrupted, and returns how it ended, or the ``end`` of the interrupt. On
        return all its processes are gone."""
        environment = PlatformEnvironment(
            platform,
            self._store,
            self._checkpoints_kept,
            self._clock,
            self.put,
            self._report,
            lambda: self._interrupt is not None,
        )
        self._environment = environment
        executor = JobExecutor(self._machine, environment)
        if self._roster is None:
            executor.start(self._prepared)
        else:
            executor.take_over(self._roster)
        while environment.ended is None and self._interrupt is None:
            event = self._next(executor)
            if event is None:
                self._pass_time(executor, platform)
            elif not isinstance(event, Interrupt):
                self._react(event, executor)
        interrupt = self._interrupt
        environment.stop(_STOP_S_MAX)
        platform.close(_STOP_S_MAX if interrupt is None else 0.0)
        return environment.ended if interrupt is None else interrupt.end

    def _next(self, executor: JobExecutor) -> ToCoordinator | JobEvent | Interrupt | None:
        """The next event, or None when something else is due. Waiting events come first."""
        with suppress(Empty):
            return self._inbox.get_nowait()
        due_us = executor.wake_us if self._kills.next_us is None else min(executor.wake_us, self._kills.next_us)
        wait_s = min(max(0.0, (due_us - self._clock.now_us()) / 1e6), _WAIT_S_MAX)
        with suppress(Empty):
            return self._inbox.get(timeout=wait_s)
        return None

    def _pass_time(self, executor: JobExecutor, platform: Platform) -> None:
        self._kills.carry_out(self._clock.now_us(), partial(self._crash, platform))
        for number in self._busy.find(self._clock.now_us(), platform.cpu_us, self._machine.processes):
            executor.handle(ProcessBusy(number))
        if executor.wake_us <= self._clock.now_us():
            executor.tick()

    def _crash(self, platform: Platform, task: TaskId) -> bool:
        """Kills the task's process. Returns whether there was one."""
        now_us, owner = self._clock.now_us(), self._machine.owners.get(task)
        crashed = owner is not None and platform.crash(owner)
        if crashed:
            self._listeners.crashed(now_us, task)
        return crashed

    def _react(self, event: ToCoordinator | JobEvent, executor: JobExecutor) -> None:
        process: int = getattr(event, "process", -1)
        if process in self._machine.processes:
            self._busy.seen(process, self._clock.now_us())
            if isinstance(event, Pong):
                self._listeners.count(self._machine.processes[process].task, process, event.counters)
        executor.handle(event)

    def _report(self, event: CoordinatorEvent) -> None:
        now_us = self._clock.now_us()
        if isinstance(event, Deployed):
            self._kills.deployed(now_us)
        self._listeners.report(now_us, event)
