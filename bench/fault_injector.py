"""Injects failures into real processes: SIGKILL to tasks, standbys and the coordinator, SIGSTOP, steps of a clock, the
loss of a node, and failures of brokers."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from clonos_py.bench.clock_shim import ClockSteps
from clonos_py.bench.kafka.brokers import Brokers
from clonos_py.bench.standstills import Standstill, TaskEvent
from clonos_py.model.ids import DEFAULT_NAMESPACE
from clonos_py.runtime.ray.actors import ProcessPlace
from clonos_py.runtime.ray.cluster import import_ray

_ANSWER_S = 20.0
"""How long to wait for an answer of the coordinator: one that has been replaced may never answer."""


class InjectedFault(Enum):
    """The kinds of failures that are injected into a running job."""

    TASK = "task killed"
    STANDBY = "standby killed"
    NEIGHBOURS = "tasks killed at once"
    AGAIN = "task killed, then its replacement"
    DURING = "task killed while another recovers"
    SLEEP = "task stopped, woken as a zombie"
    COORDINATOR = "coordinator killed"
    COORDINATOR_AND_TASK = "coordinator and task killed"
    STANDSTILL = "coordinator stopped and woken"
    CLOCK = "clock of a task stepped"
    NODE = "node lost"
    BROKER = "broker killed, back after seconds"
    BROKER_STANDSTILL = "broker stopped and woken"
    CONNECTIONS = "connections to brokers cut"


OF_BROKERS = frozenset({InjectedFault.BROKER, InjectedFault.BROKER_STANDSTILL, InjectedFault.CONNECTIONS})


_DRAWN = {
    InjectedFault.TASK: 6,
    InjectedFault.STANDBY: 2,
    InjectedFault.NEIGHBOURS: 3,
    InjectedFault.AGAIN: 3,
    InjectedFault.DURING: 3,
    InjectedFault.SLEEP: 2,
    InjectedFault.COORDINATOR: 1,
    InjectedFault.COORDINATOR_AND_TASK: 1,
    InjectedFault.STANDSTILL: 2,
    InjectedFault.CLOCK: 2,
    InjectedFault.BROKER: 3,
    InjectedFault.BROKER_STANDSTILL: 2,
    InjectedFault.CONNECTIONS: 6,
}
_STANDSTILL_S = (1.0, 6.0)
_CLOCK_STEP_S = 3_600.0
"""The largest step of a clock, forwards or backwards."""
_TO_TASKS = frozenset(_DRAWN) - {
    InjectedFault.STANDBY,
    InjectedFault.COORDINATOR,
    InjectedFault.STANDSTILL,
    InjectedFault.CLOCK,
    *OF_BROKERS,
}
_START_S_MAX = 60.0
"""How long a fault waits for its victim to start."""
_MOMENT_S = 0.06
"""How long after a kill the failure has been detected and the recovery has begun."""


@dataclass
class InjectedCounts:
    """How often each fault was injected, and how many SIGKILLs were sent."""

    faults: Counter[InjectedFault] = field(default_factory=Counter)
    kills: int = 0


@dataclass
class FaultInjector:
    """Injects faults into the running job ``job``. A fault is skipped if its victim does not exist or has just died.
    ``clocks``: None if clocks cannot be stepped. ``brokers``: the brokers that the job uses, or None."""

    job: str
    lose_node: Callable[[], None] | None = None
    clocks: ClockSteps | None = None
    brokers: Brokers | None = None
    random: random.Random = field(default_factory=random.Random)
    """Draws durations and the sizes of clock steps."""
    counts: InjectedCounts = field(default_factory=InjectedCounts)
    harmed_at: list[TaskEvent] = field(default_factory=list)
    """When which task was harmed: its later failures have a known cause."""
    standstills: list[Standstill] = field(default_factory=list)

    def inject(self, fault: InjectedFault, victims: Sequence[str]) -> None:
        """Injects one fault. ``victims``: the task that the fault is for, then further tasks that fail with it."""
        first = victims[0]
        if fault in _TO_TASKS:
            self.harmed_at += [TaskEvent(time.monotonic(), task) for task in victims]
        with suppress(import_ray().exceptions.RayActorError, TimeoutError, ValueError, LookupError, ProcessLookupError):
            match fault:
                case InjectedFault.TASK:
                    self._kill(first)
                case InjectedFault.STANDBY:
                    self._kill_pids(self.await_process(first, active=False))
                case InjectedFault.NEIGHBOURS:
                    self._kill(*victims)
                case InjectedFault.AGAIN:
                    old_pids = self.pids((first,))
                    self._kill_pids(old_pids)
                    self._kill_pids(self.await_process(first, old_pids=old_pids))
                case InjectedFault.DURING:
                    pid, *more = self.pids(victims)
                    self._kill_pids([pid])
                    time.sleep(_MOMENT_S)
                    self._kill_pids(more)
                case InjectedFault.SLEEP:
                    self._stop_task(first)
                case InjectedFault.COORDINATOR:
                    self._kill_coordinator()
                case InjectedFault.COORDINATOR_AND_TASK:
                    pids = self.pids((first,))
                    self._kill_coordinator()
                    self._kill_pids(pids)
                case InjectedFault.STANDSTILL:
                    self._stop_coordinator()
                case InjectedFault.CLOCK:
                    if self.clocks is None:
                        return
                    (pid,) = self.pids((first,))
                    self.clocks.step(pid, self.random.uniform(-_CLOCK_STEP_S, _CLOCK_STEP_S))
                case InjectedFault.NODE:
                    self.harmed_at.append(TaskEvent(time.monotonic(), ""))
                    assert self.lose_node is not None
                    self.lose_node()
                case InjectedFault.BROKER:
                    assert self.brokers is not None
                    self.brokers.kill()
                    self.counts.kills += 1
                case InjectedFault.BROKER_STANDSTILL:
                    assert self.brokers is not None
                    self.brokers.stand_still()
                case InjectedFault.CONNECTIONS:
                    assert self.brokers is not None
                    self.brokers.cut()
            self.counts.faults[fault] += 1

    def _coordinator(self) -> Any:
        return import_ray().get_actor(self.job, namespace=DEFAULT_NAMESPACE)

    def _places(self) -> list[ProcessPlace]:
        places: list[ProcessPlace] = import_ray().get(self._coordinator().processes.remote(), timeout=_ANSWER_S)
        return places

    def pids(self, tasks: Sequence[str]) -> list[int]:
        """The process ids of the active tasks. Raises LookupError if a task has no process."""
        places = self._places()
        found = [[p.pid for p in places if str(p.task) == task and p.active] for task in tasks]
        return [pids[0] for pids in found]

    def _kill(self, *tasks: str) -> None:
        self._kill_pids(self.pids(tasks))

    def _kill_pids(self, pids: Sequence[int]) -> None:
        for pid in dict.fromkeys(pids):
            os.kill(pid, signal.SIGKILL)
            self.counts.kills += 1

    def _kill_coordinator(self) -> None:
        self._kill_pids([import_ray().get(self._coordinator().pid.remote(), timeout=_ANSWER_S)])

    def _stop_coordinator(self) -> None:
        """Stops the coordinator and wakes it. Returns only then, so that no other fault is injected meanwhile."""
        pid = import_ray().get(self._coordinator().pid.remote(), timeout=_ANSWER_S)
        stopped_s = time.monotonic()
        os.kill(pid, signal.SIGSTOP)
        try:
            time.sleep(self.random.uniform(*_STANDSTILL_S))
        finally:
            wake(pid)
        self.standstills.append(Standstill(stopped_s, time.monotonic()))

    def await_process(self, task: str, active: bool = True, old_pids: Sequence[int] = ()) -> list[int]:
        """Waits for a process of the task that is not in ``old_pids`` and returns its id. ``active``: whether it is the
        active task or a standby. Raises LookupError if none starts in time."""
        deadline = time.monotonic() + _START_S_MAX
        while time.monotonic() < deadline:
            places = [place for place in self._places() if str(place.task) == task and place.active == active]
            found = [place.pid for place in places if place.pid not in old_pids][:1]
            if found:
                return found
            time.sleep(_MOMENT_S / 6)
        raise LookupError(task)

    def _stop_task(self, task: str) -> None:
        (pid,) = self.pids((task,))
        os.kill(pid, signal.SIGSTOP)
        threading.Thread(target=self._wake_when_replaced, args=(task, pid), daemon=True).start()

    def _wake_when_replaced(self, task: str, pid: int) -> None:
        """Wakes a stopped process when another one has its task, so that it continues as a zombie."""
        try:
            self.await_process(task, old_pids=[pid])
        except (import_ray().exceptions.RayError, TimeoutError, ValueError, LookupError):
            pass  # the job has ended, or the task has not been replaced
        finally:
            wake(pid)


def wake(pid: int) -> None:
    """Continues a stopped process, unless the coordinator has killed it as hung."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


def drawn(
    tasks: Sequence[str], random_: random.Random, without: Collection[InjectedFault] = ()
) -> Iterator[tuple[InjectedFault, list[str]]]:
    """An endless sequence of random faults, each with its victims. Faults in ``without`` are left out."""
    weighted = {fault: weight for fault, weight in _DRAWN.items() if fault not in without}
    faults, weights = list(weighted), list(weighted.values())
    while True:
        yield random_.choices(faults, weights)[0], random_.sample(tasks, 2)
