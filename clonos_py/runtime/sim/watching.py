"""Layers of a world that change nothing: they pass the inputs and the decisions of machines to the checkers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from clonos_py.job.completed import CompletedCheckpoint
from clonos_py.job.events import JobEvent, JobInstruction
from clonos_py.job.fleet import TaskProcess
from clonos_py.job.machine import JobMachine
from clonos_py.job.preparation import Preparation
from clonos_py.model.ids import TaskId
from clonos_py.model.messages import ToCoordinator
from clonos_py.model.plan import PhysicalPlan
from clonos_py.process.contract import Produced, RestoreState, ToTask
from clonos_py.runtime.executors.link import LinkInput
from clonos_py.runtime.sim.bounds import Bounds
from clonos_py.runtime.sim.invariants import InvariantChecker
from clonos_py.runtime.world.dispatcher import Dispatcher
from clonos_py.runtime.world.processes import LocalProcess

Decided = Callable[[list[JobInstruction]], None]


class WatchedDispatcher:
    """Passes the inputs of links and tasks to the checkers."""

    def __init__(
        self, inner: Dispatcher, processes: Mapping[int, LocalProcess], watch: InvariantChecker, bounds: Bounds
    ) -> None:
        self._inner, self._processes, self._watch, self._bounds = inner, processes, watch, bounds

    def link(self, number: int, event: LinkInput) -> None:
        process = self._processes.get(number)
        if process is None:
            return
        self._watch.works(process, self._processes)
        if isinstance(event, Produced):
            self._watch.produced(process, event)
        self._inner.link(number, event)
        if process.alive:
            self._watch.handled(process, event)
            self._bounds.handled(process, event)

    def offer(self, process: LocalProcess, item: ToTask) -> None:
        self._inner.offer(process, item)
        if isinstance(item, RestoreState) and process.alive:
            self._watch.restored(process, item)

    def step(self, process: LocalProcess, token: int) -> None:
        self._inner.step(process, token)
        self._bounds.stepped(process)
        if process.alive:
            self._watch.works(process, self._processes)

    def host(self, number: int, action: Callable[[], None]) -> None:
        self._inner.host(number, action)

    def coordinator(self, action: Callable[[], None]) -> None:
        self._inner.coordinator(action)


class WatchedCoordinator:
    """Passes the coordinator's instructions to a checker before they are carried out."""

    def __init__(self, machine: JobMachine, decided: Decided) -> None:
        self._machine, self._decided = machine, decided

    @property
    def wake_us(self) -> int:
        return self._machine.wake_us

    @property
    def processes(self) -> Mapping[int, TaskProcess]:
        return self._machine.processes

    def start(self, now_us: int, prepared: Collection[TaskProcess] = ()) -> list[JobInstruction]:
        return self._shown(self._machine.start(now_us, prepared))

    def take_over(self, roster: Mapping[int, TaskId], now_us: int) -> list[JobInstruction]:
        return self._shown(self._machine.take_over(roster, now_us))

    def handle(self, event: ToCoordinator | JobEvent, now_us: int) -> list[JobInstruction]:
        return self._shown(self._machine.handle(event, now_us))

    def tick(self, now_us: int) -> list[JobInstruction]:
        return self._shown(self._machine.tick(now_us))

    def _shown(self, instructions: list[JobInstruction]) -> list[JobInstruction]:
        self._decided(instructions)
        return instructions


class WatchedPreparation(Preparation):
    """Passes the instructions of a preparation to a checker before they are carried out."""

    def __init__(self, plan: PhysicalPlan, decided: Decided) -> None:
        super().__init__(plan)
        self._decided = decided

    def start(self) -> list[JobInstruction]:
        return self._shown(super().start())

    def load(self, ahead: CompletedCheckpoint) -> list[JobInstruction]:
        return self._shown(super().load(ahead))

    def handle(self, event: ToCoordinator | JobEvent) -> list[JobInstruction]:
        return self._shown(super().handle(event))

    def _shown(self, instructions: list[JobInstruction]) -> list[JobInstruction]:
        self._decided(instructions)
        return instructions
