"""Machines with processors for the processes of a simulated cluster: work waits for one, and holds it as long as it
costs.

A process does one thing at a time, as Python does. Processes of one machine take turns, a piece of work each.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from clonos_py.process.contract import TakeState, ToTask
from clonos_py.runtime.executors.link import LinkInput
from clonos_py.runtime.sim.costs import Amount, Costs, Duty, WorkDone, of_link_input, of_state, of_step
from clonos_py.runtime.world.actions import Actions
from clonos_py.runtime.world.dispatcher import Dispatcher
from clonos_py.runtime.world.processes import LocalProcess

_LEAST_SHARE = 0.1
"""Of its processors a machine keeps so much for work, whatever its processes use in the background."""
_TURN_US = 2_000.0
"""So long, at most, a process that starts holds a processor at a time."""
COORDINATOR = 0
"""The number of the coordinator's process; those of tasks begin with 1."""


class QueuedWork(NamedTuple):
    """``perform`` is called after the processor was held for ``us``, and says how much longer it is."""

    us: float
    perform: Callable[[], float]


def _perform(action: Callable[[], None]) -> float:
    """What costs nothing more than was said before."""
    action()
    return 0.0


def _nothing() -> None:
    pass


class Machine:
    """Some processors, and the processes that wait for one. ``background``: how many processors are used up by
    processes that have nothing to do; all work takes longer in proportion."""

    def __init__(self, processors: int, background: float = 0.0) -> None:
        self._slower = processors / max(processors - background, processors * _LEAST_SHARE)
        self._free = processors
        self._waiting: deque[int] = deque()
        self._work: dict[int, deque[QueuedWork]] = {}
        """By process that has work or is at work: what it has to do next."""
        self._left: dict[int, float] = {}
        """By process: what it has held too little so far, below a microsecond."""
        self.busy_us = 0.0

    def do(self, process: int, work: QueuedWork, actions: Actions) -> None:
        """Behind whatever the process has to do before."""
        if (before := self._work.get(process)) is not None:
            before.append(work)
            return
        self._work[process] = deque((work,))
        self._waiting.append(process)
        self._begin(actions)

    def ended(self, process: int) -> None:
        """The process has ended, with what it had still to do."""
        if process in self._work:
            self._work[process].clear()

    def _begin(self, actions: Actions) -> None:
        """Whatever waits and finds a processor."""
        while self._free and self._waiting:
            process = self._waiting.popleft()
            if not self._work[process]:
                del self._work[process]
                continue
            self._free -= 1
            work = self._work[process].popleft()
            self._hold(process, work.us, partial(self._perform, process, work, actions), actions)

    def _perform(self, process: int, work: QueuedWork, actions: Actions) -> None:
        self._hold(process, work.perform(), partial(self._release, process), actions)

    def _release(self, process: int) -> None:
        self._free += 1
        if self._work[process]:
            self._waiting.append(process)
        else:
            del self._work[process]

    def _hold(self, process: int, us: float, then: Callable[[], None], actions: Actions) -> None:
        us *= self._slower
        self.busy_us += us
        whole, self._left[process] = divmod(us + self._left.get(process, 0.0), 1)
        if whole:
            actions.at(actions.now_us + int(whole), partial(self._go_on, then, actions))
        else:
            then()

    def _go_on(self, then: Callable[[], None], actions: Actions) -> None:
        then()
        self._begin(actions)


class Machines:
    """Which machine a process is on: task ``i`` of every vertex on machine ``i``, what comes up beside it on the next.
    A process keeps its machine when it begins as another one."""

    def __init__(self, processors: int, background: Sequence[float]) -> None:
        """As many machines as ``background`` has numbers; see ``Machine``."""
        self._all = [Machine(processors, used) for used in background]
        self._coordinator = Machine(1)
        self._of: dict[int, Machine] = {COORDINATOR: self._coordinator}
        self._started: dict[str, int] = {}
        self.done = WorkDone()

    def of(self, process: LocalProcess) -> Machine:
        found = self._of.get(process.number)
        if found is None:
            before = self._started.get(str(process.task), 0)
            self._started[str(process.task)] = before + 1
            found = self._of[process.number] = self._all[(process.task.index + before % 2) % len(self._all)]
        return found

    def start(
        self, process: LocalProcess, amount: Amount, costs: Costs, actions: Actions, started: Callable[[], None]
    ) -> None:
        """The process does so much, in turn with others, before it has started."""
        self.done.add([amount])
        us = costs.work_us([amount])
        turns = max(math.ceil(us / _TURN_US), 1)
        for left in reversed(range(turns)):
            perform = partial(_perform, _nothing if left else started)
            self.of(process).do(process.number, QueuedWork(us / turns, perform), actions)

    def ended(self, number: int) -> None:
        if number in self._of:
            self._of[number].ended(number)

    @property
    def coordinator(self) -> Machine:
        return self._coordinator

    @property
    def busy_us(self) -> list[float]:
        """By machine: how long its processors were held."""
        return [machine.busy_us for machine in self._all]


class CostedDispatcher:
    """A layer before a world's dispatcher: what a process does waits for a processor of its machine."""

    def __init__(
        self,
        inner: Dispatcher,
        processes: Mapping[int, LocalProcess],
        machines: Machines,
        costs: Costs,
        duties: Mapping[str, Duty],
        actions: Callable[[], Actions],
    ) -> None:
        """``duties``: by vertex."""
        self._inner, self._processes, self._machines, self._costs = inner, processes, machines, costs
        self._duties, self._actions = duties, actions

    def link(self, number: int, event: LinkInput) -> None:
        process = self._processes.get(number)
        if process is not None:
            self._do(process, [*of_link_input(event)], partial(self._inner.link, number, event))

    def offer(self, process: LocalProcess, item: ToTask) -> None:
        amounts = [of_state(item)] if isinstance(item, TakeState) else []
        self._do(process, amounts, partial(self._inner.offer, process, item))

    def _do(self, process: LocalProcess, amounts: list[Amount], action: Callable[[], None]) -> None:
        self._machines.done.add(amounts)
        work = QueuedWork(self._costs.work_us(amounts), partial(_perform, action))
        self._machines.of(process).do(process.number, work, self._actions())

    def step(self, process: LocalProcess, token: int) -> None:
        work = QueuedWork(0.0, partial(self._step, process, token))
        self._machines.of(process).do(process.number, work, self._actions())

    def _step(self, process: LocalProcess, token: int) -> float:
        """The step is paid for when it is known what it did; what it gave waits for the process."""
        process.produced = ()
        self._inner.step(process, token)
        amounts = [*of_step(process.produced, self._duties[process.task.vertex])]
        self._machines.done.add(amounts)
        return self._costs.work_us(amounts)

    def host(self, number: int, action: Callable[[], None]) -> None:
        self._inner.host(number, action)

    def coordinator(self, action: Callable[[], None]) -> None:
        work = QueuedWork(
            self._costs.work_us([Amount("coordinate")]), partial(_perform, partial(self._inner.coordinator, action))
        )
        self._machines.coordinator.do(COORDINATOR, work, self._actions())
