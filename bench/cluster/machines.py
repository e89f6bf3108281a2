"""Machines with processors for the processes of a simulated cluster: work waits for a processor, and holds it for the
time that it costs.

A process runs one thread at a time, as Python does: its threads take turns, and so do the processes of a machine.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import NamedTuple

from clonos_py.bench.cluster.costs import BLOCK_EVENTS, Amount, Costs, Duty, WorkDone, of_link_input, of_state, of_step
from clonos_py.process.contract import RestoreState, ToTask
from clonos_py.runtime.executors.link import LinkInput
from clonos_py.runtime.world.actions import Actions
from clonos_py.runtime.world.dispatcher import Dispatcher
from clonos_py.runtime.world.processes import LocalProcess

_LEAST_SHARE = 0.1
"""The share of its processors that a machine keeps for work, even if background use is higher."""
_TURN_US = 1_000
"""The longest time for which a process holds a processor while others wait for it."""
COORDINATOR = 0
"""The number of the coordinator's process. The numbers of other processes begin with 1."""


class Thread(Enum):
    """The threads of a process (D8)."""

    LINK = "link"
    TASK = "task"


class QueuedWork(NamedTuple):
    """Work for a thread. ``perform`` is called after the processor was held for ``us``, and returns the further time
    that the work takes."""

    us: float
    perform: Callable[[], float]
    thread: Thread = Thread.LINK


def _perform(action: Callable[[], None]) -> float:
    """Performs an action that takes no further time."""
    action()
    return 0.0


@dataclass
class _Piece:
    """The current work of a process: it takes ``us`` microseconds more, then ``perform`` is called, if set."""

    us: int
    perform: Callable[[], float] | None


class _Threads:
    """The queued work of a process, by thread. One thread at a time holds the interpreter, in turn."""

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
    """Processors, and the processes that wait for one. Processes with work take turns, as under a fair scheduler.
    ``background``: the number of processors that idle processes use; all work takes longer in proportion. ``wake_us``:
    the time that a process needs to begin work after it was idle."""

    def __init__(self, processors: int, background: float = 0.0, wake_us: float = 0.0) -> None:
        self._wake_us = wake_us
        self._slower = processors / max(processors - background, processors * _LEAST_SHARE)
        self._free = processors
        self._waiting: deque[int] = deque()
        self._work: dict[int, _Threads] = {}
        """By process that has work or is running."""
        self._pieces: dict[int, _Piece] = {}
        self._left: dict[int, float] = {}
        """By process: the time that it still has to hold a processor, as a fraction of a microsecond."""

    def do(self, process: int, work: QueuedWork, actions: Actions) -> None:
        """Adds work, behind the earlier work of its thread."""
        if (before := self._work.get(process)) is not None:
            before.add(work)
            return
        self._work[process] = threads = _Threads()
        threads.add(work._replace(us=work.us + self._wake_us))
        self._waiting.append(process)
        self._begin(actions)

    def ended(self, process: int) -> None:
        """The process has ended. Its work is dropped."""
        if process in self._work:
            self._work[process].clear()
            self._pieces.pop(process, None)

    def _begin(self, actions: Actions) -> None:
        """Gives free processors to waiting processes."""
        while self._free and self._waiting:
            self._free -= 1
            self._run(self._waiting.popleft(), _TURN_US, actions)

    def _run(self, process: int, turn_us: int, actions: Actions) -> None:
        """Runs a process that has a processor. It keeps the processor for ``turn_us`` while others wait."""
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
        actions.at(actions.now_us + us, partial(self._run_and_begin, process, turn_us - us, actions))

    def _run_and_begin(self, process: int, turn_us: int, actions: Actions) -> None:
        self._run(process, turn_us, actions)
        self._begin(actions)


class Machines:
    """Assigns processes to machines. The successive processes of task ``i`` of a vertex go to machine ``i`` and to the
    machine after it in turn. The coordinator is on the first machine."""

    def __init__(self, processors: int, background: Sequence[float], wake_us: float = 0.0) -> None:
        """One machine for each number of ``background``; see ``Machine``."""
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
        """Charges a process for its start, then calls ``started``."""
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
    """A layer before a world's dispatcher: the work of a process waits for a processor of its machine."""

    def __init__(
        self,
        inner: Dispatcher,
        processes: Mapping[int, LocalProcess],
        machines: Machines,
        costs: Costs,
        duties: Mapping[str, Duty],
        actions: Callable[[], Actions],
    ) -> None:
        """``duties``: the duty of the tasks of each vertex."""
        self._inner, self._processes, self._machines, self._costs = inner, processes, machines, costs
        self._duties, self._actions = duties, actions
        self._read = Counter[int]()
        """By process: the number of events that it has read."""

    def link(self, number: int, event: LinkInput) -> None:
        process = self._processes.get(number)
        if process is not None:
            self._do(process, [*of_link_input(event)], partial(self._inner.link, number, event), Thread.LINK)

    def offer(self, process: LocalProcess, item: ToTask) -> None:
        amounts = [of_state(item)] if isinstance(item, RestoreState) else []
        self._do(process, amounts, partial(self._inner.offer, process, item), Thread.TASK)

    def _do(self, process: LocalProcess, amounts: list[Amount], action: Callable[[], None], thread: Thread) -> None:
        self._machines.done.add(amounts)
        work = QueuedWork(self._costs.work_us(amounts), partial(_perform, action), thread)
        self._machines.of(process).do(process.number, work, self._actions())

    def step(self, process: LocalProcess, token: int) -> None:
        work = QueuedWork(0.0, partial(self._step, process, token), Thread.TASK)
        self._machines.of(process).do(process.number, work, self._actions())

    def _step(self, process: LocalProcess, token: int) -> float:
        """Takes a step, and returns its cost, which is known only afterwards."""
        process.produced = ()
        self._inner.step(process, token)
        duty = self._duties[process.task.vertex]
        amounts = [*of_step(process.produced, duty)]
        if duty is Duty.READ:
            amounts.append(self._blocks(process.number, sum(a.rows for a in amounts if a.kind == duty.value)))
        self._machines.done.add(amounts)
        return self._costs.work_us(amounts)

    def _blocks(self, number: int, events: int) -> Amount:
        """The blocks that a source begins when it reads this many more events."""
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
