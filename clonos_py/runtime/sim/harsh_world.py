"""The world of generated runs: processes can hang and continue, connections can be cut, and checkers watch all events.

It is a world with layers for the simulator's failures and checks. The executors are those of the other drivers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from clonos_py.checkpoint.store import SnapshotStore
from clonos_py.job.completed import CompletedCheckpoint
from clonos_py.job.events import EndJob, JobEvent, JobInstruction, ReportEvent
from clonos_py.job.machine import JobMachine
from clonos_py.link.instructions import WriteOutput
from clonos_py.model.coordinator_events import CheckpointCompleted, CoordinatorEvent
from clonos_py.model.ids import TaskId
from clonos_py.model.plan import PhysicalPlan
from clonos_py.model.snapshots import Manifest
from clonos_py.runtime.executors.job import complete
from clonos_py.runtime.executors.link import DataConnections
from clonos_py.runtime.sim.bounds import LOOK_EVERY, Bounds
from clonos_py.runtime.sim.hanging import HangingDispatcher
from clonos_py.runtime.sim.harsh_connections import CutOff, HarshConnections
from clonos_py.runtime.sim.invariants import InvariantChecker
from clonos_py.runtime.sim.memory_output import MemoryCausalSink
from clonos_py.runtime.sim.schedule import VirtualTime
from clonos_py.runtime.sim.silence import Silence
from clonos_py.runtime.sim.watching import WatchedCoordinator, WatchedDispatcher, WatchedPreparation
from clonos_py.runtime.world.dispatcher import Dispatcher
from clonos_py.runtime.world.layers import Layers
from clonos_py.runtime.world.processes import LocalProcess, WorldConnection
from clonos_py.runtime.world.world import World, WorldSettings
from clonos_py.task.context import OperatorEnvironment

CRASHED = "crashed"
"""The error with which a job ends in a crash: no process was left to report a reason."""
_SLOW_STEPS = 3
"""If steps take more than this many times the typical time, tasks may be late."""
_CONTROL_MATTERS_US = 1_000_000
"""For this time after control messages were slow, the coordinator may find processes silent because of that."""
_DETECTION_MATTERS_US = 2_000_000
"""For this time after the detection of deaths was slow, processes may try to connect to one that has died."""


class HarshWorld:
    """A world with failures and checks. ``hook`` is called before every action. ``watch`` and ``bounds`` check all
    events."""

    def __init__(
        self,
        plan: PhysicalPlan,
        store: SnapshotStore,
        scheduler: VirtualTime,
        environment: Callable[[TaskId], OperatorEnvironment],
        settings: WorldSettings,
        listener: Callable[[int, CoordinatorEvent], None],
        hook: Callable[[HarshWorld], None],
        watch: InvariantChecker,
        bounds: Bounds,
    ) -> None:
        self._hook, self._watch, self._bounds, self._silence, self._time = hook, watch, bounds, Silence(), scheduler
        self._cut_off = CutOff()
        self.manifests_that_hang = 0
        layers = Layers(
            dispatcher=self._dispatcher,
            connections=self._connections,
            coordinator=self._coordinator,
            preparation=self._preparation,
            complete=self._complete,
            fence=self._fence,
            ending=self._ending,
        )
        self.world = World(plan, store, scheduler, environment, settings, listener, hook=self._before, layers=layers)
        self.plan = plan
        self.processes, self.kill, self.at = self.world.processes, self.world.kill, self.world.actions.at

    @property
    def now_us(self) -> int:
        return self.world.now_us

    @property
    def actions_done(self) -> int:
        return self.world.actions_done

    def run(self, ahead: CompletedCheckpoint | None = None) -> EndJob:
        return self.world.run(ahead)

    @property
    def prepares(self) -> bool:
        """Whether processes load state, and the deployment has not begun."""
        return self.world.coordination.preparation is not None

    def _before(self, world: World) -> None:
        actions = world.actions
        self._watch.tick(actions.now_us)
        if actions.done % LOOK_EVERY == 0:
            self._bounds.look(self._responsive(), actions.now_us)
        self._hook(self)

    def _responsive(self) -> list[LocalProcess]:
        """The processes that should act in time: those that do not hang. None while steps are slow."""
        if self._time.slowness.get("step", 1.0) > _SLOW_STEPS:
            return []
        hung = self._hanging.hung()
        return [process for number, process in self.processes.items() if number not in hung]

    # ---- faults of all processes

    def crash(self) -> None:
        """Ends the world at once, without a message."""
        self.world.end(EndJob(CRASHED))

    def request_stop(self) -> None:
        """The user stops the job."""
        self.world.request_stop()

    # ---- faults of processes

    def is_frozen(self, number: int) -> bool:
        return number in self._hanging.hung()

    def freeze(self, number: int, duration_us: int) -> None:
        """Makes a process hang, and all others in its host process."""
        numbers = self.world.coordination.in_host_process_of(number)
        for hung in numbers:
            self._silence.hangs(hung)
        self._hanging.hang(numbers, duration_us, self.world.actions, self.world.kill)

    def _dispatcher(self, inner: Dispatcher, processes: Mapping[int, LocalProcess]) -> Dispatcher:
        self._hanging = HangingDispatcher(WatchedDispatcher(inner, processes, self._watch, self._bounds))
        return self._hanging

    def _fence(self, number: int) -> None:
        if number in self._hanging.hung():
            self.world.coordination.drop(number)
            self._hanging.becomes_zombie(number)
        else:
            self.world.end_process(number)

    def _ending(self, number: int) -> None:
        self._hanging.ended(number)
        self._tear(number)

    def _tear(self, number: int) -> None:
        """Tears the next causal output of a process that ends: nothing of it is written, or only the log, or the log
        and some of the rows."""
        process = self.world.processes.get(number)
        instruction = (
            next((work for work in process.unstored if isinstance(work, WriteOutput)), None) if process else None
        )
        if process is not None and instruction is not None and number % 3:
            sink = process.machine.committing[instruction.name]
            assert isinstance(sink, MemoryCausalSink)
            torn_after = self.world.actions_done % (len(instruction.pieces) + 1)
            sink.append(instruction.epoch, instruction.log, instruction.pieces, torn_after=torn_after)

    # ---- faults of connections

    def _connections(self, process: LocalProcess, inner: DataConnections) -> DataConnections:
        world = self.world
        return HarshConnections(process, inner, world.network, world.actions, self._cut_off, self._watch)

    def pairs(self) -> list[tuple[LocalProcess, LocalProcess]]:
        """The connected pairs of processes, as (sender, receiver)."""
        connections = self.world.network.connections.values()
        return [(c.sender, c.receiver) for c in connections if c.sender.alive and c.receiver.alive]

    def hold_back(self, sender: LocalProcess, receiver: LocalProcess, duration_us: int) -> None:
        actions = self.world.actions
        for number, _ in self._between(sender, receiver):
            actions.hold_back((number, sender.number), actions.now_us + duration_us)

    def cut(self, one: LocalProcess, other: LocalProcess, duration_us: int | None) -> None:
        """Cuts the connections between two processes; messages in transit are lost. New connections are refused for
        ``duration_us``, or for good (None)."""
        for number, _ in self._between(one, other):
            self.world.network.cut(number, (one, other))
        self._cut_off.add(one.number, other.number)
        if duration_us is None:
            self._silence.cut_off()
        else:
            reach_again = partial(self._cut_off.discard, one.number, other.number)
            self.world.actions.at(self.world.now_us + duration_us, reach_again)

    def _between(self, one: LocalProcess, other: LocalProcess) -> list[tuple[int, WorldConnection]]:
        ends = {one.number, other.number}
        connections = self.world.network.connections
        return [(n, c) for n, c in connections.items() if {c.sender.number, c.receiver.number} == ends]

    # ---- faults of the coordinator

    def stand_still(self, duration_us: int) -> None:
        """Makes the coordinator hang for ``duration_us``, as if it were stopped, or its machine suspended."""
        self._hanging.stand_still(duration_us, self.world.actions)

    def lose_coordinator(self) -> None:
        """The coordinator dies, and its waiting actions are dropped. Another replaces it."""
        if not self.world.coordination.lost:
            self._hanging.coordinator_lost()
        self.world.coordination.lose()

    def _coordinator(self, machine: JobMachine) -> WatchedCoordinator:
        self._hanging.coordinator_begins()
        return WatchedCoordinator(machine, partial(self._decided, machine))

    def _preparation(self, plan: PhysicalPlan) -> WatchedPreparation:
        return WatchedPreparation(plan, lambda instructions: self._watch.decided(instructions, self.world.processes))

    def _decided(self, machine: JobMachine, instructions: list[JobInstruction]) -> None:
        if not instructions:
            return
        processes = self.world.processes
        self._watch.decided(instructions, processes)
        control_is_slow = self._time.was_slow("control", _CONTROL_MATTERS_US)
        starting_is_slow = self._time.slowness.get("start", 1.0) > 1
        connecting_is_slow = starting_is_slow or self._time.was_slow("detect", _DETECTION_MATTERS_US)
        self._silence.decided(instructions, processes, control_is_slow, connecting_is_slow)
        if any(isinstance(i, ReportEvent) and isinstance(i.event, CheckpointCompleted) for i in instructions):
            self._bounds.completed(machine)

    def _complete(self, manifest: Manifest, store: SnapshotStore) -> Iterable[JobEvent]:
        if self.manifests_that_hang:
            self.manifests_that_hang -= 1
            return ()
        return complete(manifest, store)
