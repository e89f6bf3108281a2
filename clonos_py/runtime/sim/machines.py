"""Machines with processors for the processes of a simulated cluster: work waits for one, and holds it as long as it
costs.

A process does one thing at a time, as Python does: its threads take turns, and so do processes of one machine.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import NamedTuple

from clonos_py.process.contract import TakeState, ToTask
from clonos_py.runtime.executors.link import LinkInput
from clonos_py.runtime.sim.costs import BLOCK_EVENTS, Amount, Costs, Duty, WorkDone, of_link_input, of_state, of_step
from clonos_py.runtime.world.actions import Actions
from clonos_py.runtime.world.dispatcher import Dispatcher
from clonos_py.runtime.world.processes import LocalProcess

_LEAST_SHARE = 0.1
"""Of its processors a machine keeps so much for work, whatever its processes use in the background."""
_TURN_US = 1_000
"""So long, at most, a process holds a processor while others wait for it."""
COORDINATOR = 0
"""The number of the coordinator's process; those of tasks begin with 1."""


class Thread(Enum):
    """Of a process (D8)."""

    LINK = "link"
    TASK = "task"


class QueuedWork(NamedTuple):
    """``perform`` is called after the processor was held for ``us``, and says how much longer it is."""

    us: float
    perform: Callable[[], float]
    thread: Thread = Thread.LINK


def _perform(action: Callable[[], None]) -> float:
    """What costs nothing more than was said before."""
    action()
    return 0.0


@dataclass
class _Piece:
    """What a process is in the middle of: so many microseconds more, then ``perform`` if there is any."""

    us: int
    perform: Callable[[], float] | None


class _Threads:
    """What a process has to do: a queue for each of its threads. One has the interpreter at a time, in turn."""

    def __init__(self) -> None:
        self._queues: dict[Thread, deque[QueuedWork]] = {Thread.TASK: deque(), Thread.LINK: deque()}
        self._turns = deque(self._queues.values())

    def add(self, work: QueuedWork) -> None:
        self._queues[work.thread].append(work)

    def take(self) -> QueuedWork | None:
        for _ in self._queues:
            queue = self._turns[0]
            self._turns.rotate()
            if queue:
                return queue.popleft()
        return None

    def clear(self) -> None:
        for queue in self._turns:
            queue.clear()


class Machine:
    """Some processors, and the processes that wait for one. Who has work takes turns with the others, as under a fair
    scheduler. ``background``: how many processors are used up by processes that have nothing to do; all work takes
    longer in proportion. ``wake_us``: what a process needs to begin work after it had none."""

    def __init__(self, processors: int, background: float = 0.0, wake_us: float = 0.0) -> None:
        self._wake_us = wake_us
        self._slower = processors / max(processors - background, processors * _LEAST_SHARE)
        self._free = processors
        self._waiting: deque[int] = deque()
        self._work: dict[int, _Threads] = {}
        """By process that has work or is at work."""
        self._pieces: dict[int, _Piece] = {}
        self._left: dict[int, float] = {}
        """By process: what it has held too little so far, below a microsecond."""

    def do(self, process: int, work: QueuedWork, actions: Actions) -> None:
        """Behind whatever the thread has to do before."""
        if (before := self._work.get(process)) is not None:
            before.add(work)
            return
        self._work[process] = threads = _Threads()
        threads.add(work._replace(us=work.us + self._wake_us))
        self._waiting.append(process)
        self._begin(actions)

    def ended(self, process: int) -> None:
        """The process has ended, with what it had still to do."""
        if process in self._work:
            self._work[process].clear()
            self._pieces.pop(process, None)

    def _begin(self, actions: Actions) -> None:
        """Whatever waits and finds a processor."""
        while self._free and self._waiting:
            self._free -= 1
            self._go_on(self._waiting.popleft(), _TURN_US, actions)

    def _go_on(self, process: int, turn_us: int, actions: Actions) -> None:
        """The process has a processor, and keeps it for so long while others wait."""
        while (piece := self._piece(process)) is not None:
            if piece.us:
                self._hold(process, piece, turn_us, actions)
                return
            del self._pieces[process]
            if piece.perform is not None and (later_us := piece.perform()):
                self._pieces[process] = _Piece(self._whole(process, later_us), None)
        del self._work[process]
        self._free += 1

    def _piece(self, process: int) -> _Piece | None:
        piece = self._pieces.get(process)
        if piece is None and (work := self._work[process].take()) is not None:
            piece = self._pieces[process] = _Piece(self._whole(process, work.us), work.perform)
        return piece

    def _whole(self, process: int, us: float) -> int:
        whole, self._left[process] = divmod(us * self._slower + self._left.get(process, 0.0), 1)
        return int(whole)

    def _hold(self, process: int, piece: _Piece, turn_us: int, actions: Actions) -> None:
        if turn_us <= 0 and self._waiting:
            self._waiting.append(process)
            self._free += 1
            return
        us = min(piece.us, turn_us if turn_us > 0 else _TURN_US)
        piece.us -= us
        actions.at(actions.now_us + us, partial(self._go_on_and_begin, process, turn_us - us, actions))

    def _go_on_and_begin(self, process: int, turn_us: int, actions: Actions) -> None:
        self._go_on(process, turn_us, actions)
        self._begin(actions)


class Machines:
    """Which machine a process is on: task ``i`` of every vertex on machine ``i``, what comes up beside it on the next,
    the coordinator on the first. A process keeps its machine when it begins as another one."""

    def __init__(self, processors: int, background: Sequence[float], wake_us: float = 0.0) -> None:
        """As many machines as ``background`` has numbers; see ``Machine``."""
        self._all = [Machine(processors, used, wake_us) for used in background]
        self._of: dict[int, Machine] = {COORDINATOR: self._all[0]}
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
        """The process does so much before it has started."""
        self.done.add([amount])
        work = QueuedWork(costs.work_us([amount]), partial(_perform, started))
        self.of(process).do(process.number, work, actions)

    def ended(self, number: int) -> None:
        if number in self._of:
            self._of[number].ended(number)

    @property
    def coordinator(self) -> Machine:
        return self._of[COORDINATOR]


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
        self._read = Counter[int]()
        """By process: events."""

    def link(self, number: int, event: LinkInput) -> None:
        process = self._processes.get(number)
        if process is not None:
            self._do(process, [*of_link_input(event)], partial(self._inner.link, number, event), Thread.LINK)

    def offer(self, process: LocalProcess, item: ToTask) -> None:
        amounts = [of_state(item)] if isinstance(item, TakeState) else []
        self._do(process, amounts, partial(self._inner.offer, process, item), Thread.TASK)

    def _do(self, process: LocalProcess, amounts: list[Amount], action: Callable[[], None], thread: Thread) -> None:
        self._machines.done.add(amounts)
        work = QueuedWork(self._costs.work_us(amounts), partial(_perform, action), thread)
        self._machines.of(process).do(process.number, work, self._actions())

    def step(self, process: LocalProcess, token: int) -> None:
        work = QueuedWork(0.0, partial(self._step, process, token), Thread.TASK)
        self._machines.of(process).do(process.number, work, self._actions())

    def _step(self, process: LocalProcess, token: int) -> float:
        """The step is paid for when it is known what it did; what it gave waits for the process."""
        process.produced = ()
        self._inner.step(process, token)
        duty = self._duties[process.task.vertex]
        amounts = [*of_step(process.produced, duty)]
        if duty is Duty.READ:
            amounts.append(self._blocks(process.number, sum(a.rows for a in amounts if a.kind == duty.value)))
        self._machines.done.add(amounts)
        return self._costs.work_us(amounts)

    def _blocks(self, number: int, events: int) -> Amount:
        """Those that a process begins with so many events more."""
        before = self._read[number]
        self._read[number] = after = before + events * self._costs.rows_per_row
        return Amount("block", after // BLOCK_EVENTS - before // BLOCK_EVENTS)

    def host(self, number: int, action: Callable[[], None]) -> None:
        self._inner.host(number, action)

    def coordinator(self, action: Callable[[], None]) -> None:
        work = QueuedWork(
            self._costs.work_us([Amount("coordinate")]), partial(_perform, partial(self._inner.coordinator, action))
        )
        self._machines.coordinator.do(COORDINATOR, work, self._actions())
