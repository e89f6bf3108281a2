"""The world of generated runs: processes can hang and wake up, connections can be cut, and everything is watched.

What a hung process is told waits until it wakes up. To kill it is in vain, as on a host that cannot be reached: it
becomes a zombie. A process that is alone with itself in this way ends some time after it has woken up.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from clonos_py.checkpoint.store import SnapshotStore
from clonos_py.job.events import EndJob, JobInstruction, Report, ReportKind, WriteManifest
from clonos_py.model.ids import TaskId
from clonos_py.model.plan import PhysicalPlan
from clonos_py.runtime.executors.storage import StorageWork
from clonos_py.runtime.processes import Connection, LocalProcess
from clonos_py.runtime.sim.bounds import Bounds
from clonos_py.runtime.sim.invariants import InvariantChecker
from clonos_py.runtime.sim.memory_output import MemoryCausalSink
from clonos_py.runtime.sim.schedule import VirtualTime
from clonos_py.runtime.sim.silence import Silence
from clonos_py.runtime.world import Settings, World
from clonos_py.task import instructions as io
from clonos_py.task.context import Ports
from clonos_py.task.events import Produced, TakeState

CRASHED = "crashed"
"""As the error of a job's end: nobody was left to say why."""
_ZOMBIE_LIVES_US = 20_000
_SLOW_STEPS = 3
"""Steps that take longer than so many times as long as is typical make tasks late."""
_CONTROL_MATTERS_US = 1_000_000
"""For so long after control messages were slow the coordinator may still find somebody silent because of that."""


class HarshWorld(World):
    """``hook`` is called before every action, ``watch`` and ``bounds`` see everything that happens."""

    def __init__(
        self,
        plan: PhysicalPlan,
        store: SnapshotStore,
        scheduler: VirtualTime,
        ports: Callable[[TaskId], Ports],
        settings: Settings,
        listener: Callable[[int, Report], None],
        hook: Callable[[HarshWorld], None],
        watch: InvariantChecker,
        bounds: Bounds,
    ) -> None:

        def before(world: World) -> None:
            watch.tick(self.now_us)
            bounds.look(self._prompt, self.now_us)
            hook(self)

        super().__init__(plan, store, scheduler, ports, settings, listener, hook=before)
        self._watch, self._bounds, self._silence, self._time = watch, bounds, Silence(), scheduler
        self._frozen: dict[int, list[Callable[[], None]]] = {}
        self._fenced: set[int] = set()
        self._cut_off: set[frozenset[int]] = set()
        self._writing: dict[int, list[io.WriteOutput]] = {}
        self._standstill: list[Callable[[], None]] | None = None
        """What the coordinator has to do once it gets a processor again; None: it has one."""
        self.manifests_that_hang = 0

    # ---- what befalls

    def crash(self) -> None:
        """Nothing more happens here."""
        self.ended = EndJob(CRASHED)

    def _prompt(self) -> list[LocalProcess]:
        """Processes that do in time what they have to: that are not hung, while steps do not take long."""
        if self._time.slowness.get("step", 1.0) > _SLOW_STEPS:
            return []
        return [process for number, process in self.processes.items() if number not in self._frozen]

    def is_frozen(self, number: int) -> bool:
        return number in self._frozen

    def freeze(self, number: int, duration_us: int) -> None:
        """With everybody who shares its host process."""
        for hung in self._in_host_process_of(number):
            self._frozen[hung] = []
            self._silence.hangs(hung)
            self.at(self.now_us + duration_us, partial(self._wake, hung))

    def _wake(self, number: int) -> None:
        """What has waited happens now, in its order."""
        for action in self._frozen.pop(number, ()):
            self.at(self.now_us, action)
        if number in self._fenced:
            self.at(self.now_us + _ZOMBIE_LIVES_US, lambda: self.kill(number))

    def stand_still(self, duration_us: int) -> None:
        """The coordinator does nothing for so long, as if it was stopped, or its machine suspended."""
        if self._standstill is None:
            self._standstill = []
            self.at(self.now_us + duration_us, self._go_on)

    def _go_on(self) -> None:
        """What has waited happens now, in its order."""
        waiting, self._standstill = self._standstill or [], None
        for action in waiting:
            action()

    def _by_coordinator(self, action: Callable[[], None]) -> None:
        if self._standstill is not None:
            self._standstill.append(action)
        else:
            super()._by_coordinator(action)

    def lose_coordinator(self) -> None:
        """With what it had still to do."""
        if not self._lost and self._standstill is not None:
            self._standstill.clear()
        super().lose_coordinator()

    def _replace_coordinator(self) -> None:
        self._standstill = None
        super()._replace_coordinator()

    def _write_manifest(self, instruction: WriteManifest) -> None:
        if self.manifests_that_hang:
            self.manifests_that_hang -= 1
        else:
            super()._write_manifest(instruction)

    def pairs(self) -> list[tuple[LocalProcess, LocalProcess]]:
        """Processes that talk to each other: (sender, receiver)."""
        return [(c.sender, c.receiver) for c in self._connections.values() if c.sender.alive and c.receiver.alive]

    def hold_back(self, sender: LocalProcess, receiver: LocalProcess, duration_us: int) -> None:
        for number, _ in self._between(sender, receiver):
            queue = (number, sender.number)
            self._latest[queue] = max(self._latest.get(queue, 0), self.now_us + duration_us)

    def cut(self, one: LocalProcess, other: LocalProcess, duration_us: int | None) -> None:
        """Both ends lose their connections, and what was on the way; new ones are refused for a while, or for good."""
        pair = frozenset((one.number, other.number))
        for number, connection in self._between(one, other):
            self._connections.pop(number)
            connection.closed = connection.lossy = True
            for process in (one, other):
                process.connections.discard(number)
                self._lose(process, number)
        self._cut_off.add(pair)
        if duration_us is None:
            self._silence.cut_off()
        else:
            self.at(self.now_us + duration_us, lambda: self._cut_off.discard(pair))

    def _lose(self, process: LocalProcess, connection: int) -> None:
        lost = io.Lost(connection)
        self.after("network", (connection, "cut", process.number), lambda: self._link_event(process.number, lost))

    def _between(self, one: LocalProcess, other: LocalProcess) -> list[tuple[int, Connection]]:
        ends = {one.number, other.number}
        return [(n, c) for n, c in self._connections.items() if {c.sender.number, c.receiver.number} == ends]

    # ---- what waits while a process hangs

    def _waits(self, number: int, action: Callable[[], None]) -> bool:
        waiting = self._frozen.get(number)
        if waiting is not None:
            waiting.append(action)
        return waiting is not None

    def _link_event(self, number: int, event: Any) -> None:
        if self._frozen and self._waits(number, lambda: self._link_event(number, event)):
            return
        process = self.processes.get(number)
        if process is not None and isinstance(event, Produced):
            self._watch.produced(process, event)
        super()._link_event(number, event)
        if process is not None and process.alive:
            self._watch.handled(process, event)
            self._bounds.handled(process, event)

    def _offer(self, process: LocalProcess, item: Any) -> None:
        if not self._frozen or not self._waits(process.number, lambda: self._offer(process, item)):
            super()._offer(process, item)
            if isinstance(item, TakeState) and process.alive:
                self._watch.restored(process, item)

    def _step(self, process: LocalProcess, token: int) -> None:
        if not self._frozen or not self._waits(process.number, lambda: self._step(process, token)):
            super()._step(process, token)
            self._bounds.stepped(process)

    def _end_process(self, number: int) -> bool:
        self._frozen.pop(number, None)
        self._tear(number)
        return super()._end_process(number)

    # ---- what is written when its writer dies

    def _obey(self, process: LocalProcess, instruction: io.Instruction) -> None:
        if isinstance(instruction, io.WriteOutput):
            self._writing.setdefault(process.number, []).append(instruction)
        super()._obey(process, instruction)

    def _use_sinks(self, process: LocalProcess, wish: StorageWork) -> None:
        if process.alive and isinstance(wish, io.WriteOutput):
            self._writing[process.number].remove(wish)
        super()._use_sinks(process, wish)

    def _tear(self, number: int) -> None:
        """Of what was to be written next there is nothing, only the log, or some of the rows besides."""
        process, wishes = self.processes.get(number), self._writing.pop(number, [])
        if process is not None and wishes and number % 3:
            wish, sink = wishes[0], process.machine.sinks[wishes[0].name]
            assert isinstance(sink, MemoryCausalSink)
            sink.append(wish.epoch, wish.log, wish.pieces, torn_after=self.actions_done % (len(wish.pieces) + 1))

    # ---- what is watched, and what is in vain

    def _send_frame(self, process: LocalProcess, wish: io.SendFrame) -> None:
        self._watch.sent(process, wish)
        super()._send_frame(process, wish)

    def _connect(self, process: LocalProcess, wish: io.Connect) -> None:
        if frozenset((process.number, int(wish.address))) in self._cut_off:
            lost = io.Lost(-1, wish.input, wish.hello, "cut off")
            self.after("start", (process.number, "connect", wish.input), lambda: self._link_event(process.number, lost))
        else:
            super()._connect(process, wish)

    def _coordinate(self, instructions: list[JobInstruction]) -> None:
        self._watch.decided(instructions, self.processes)
        control_is_slow = self._time.was_slow("control", _CONTROL_MATTERS_US)
        self._silence.decided(instructions, self.processes, control_is_slow, self._time.slowness.get("start", 1.0) > 1)
        if any(isinstance(i, Report) and i.what is ReportKind.CHECKPOINT_COMPLETED for i in instructions):
            self._bounds.completed(self.job)
        super()._coordinate(instructions)

    def _fence(self, number: int) -> None:
        if number in self._frozen:
            self._roster.pop(number, None)
            self._fenced.add(number)
        else:
            super()._fence(number)
