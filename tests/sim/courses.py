"""Simulated jobs that are started again after a crash or a stop, with their storage and their output."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from functools import partial

from clonos_py.checkpoint.memory import MemoryStore
from clonos_py.job.events import EndJob, JobPolicy
from clonos_py.link.instructions import LinkEvent, WriteOutput
from clonos_py.model.coordinator_events import CoordinatorEvent
from clonos_py.process.contract import ChannelLimits, TaskState
from clonos_py.runtime.executors.storage import StorageWork
from clonos_py.runtime.sim.run import SimulatedEnvironment
from clonos_py.runtime.sim.schedule import VirtualTime
from clonos_py.runtime.world.layers import Layers
from clonos_py.runtime.world.processes import LocalProcess, Storage
from clonos_py.runtime.world.world import World, WorldSettings
from tests.witness import CausalWitness, WitnessJob, WitnessLedger, disagreements

CRASHED = "crashed"
_RUNS_MAX = 10


Faults = Callable[["Course", World], None]
AtSinks = Callable[["Course", World, LocalProcess, StorageWork], bool]


class AskedStorage:
    """The storage of a process. It asks its course before every action."""

    def __init__(self, inner: Storage, may: Callable[[StorageWork], bool]) -> None:
        self._inner, self._may = inner, may

    def carry_out(self, work: StorageWork) -> Iterable[LinkEvent]:
        return self._inner.carry_out(work) if self._may(work) else ()


class Course:
    """All runs of one job. Processes die in the middle of a write. ``faults`` is called before every action;
    ``at_sinks`` decides whether a sink executes an action, and may do something else before or instead."""

    def __init__(
        self, seed: int, job: WitnessJob, faults: Faults | None = None, at_sinks: AtSinks | None = None
    ) -> None:
        self.random = random.Random(seed)
        self.ledger = WitnessLedger()
        self.events: list[CoordinatorEvent] = []
        self.runs = 0
        self.torn = 0
        """Writes of which only a part was stored when their process died."""
        self._faults, self._at_sinks, self._job = faults, at_sinks, job
        self._plan = job.plan(self.ledger)
        self._store = MemoryStore(self._plan.job)
        self._time = VirtualTime(self.random)
        self._window = self.random.choice([1, 4, 16])

    def run(self) -> list[str]:
        """Runs the job to its end, in as many runs as it takes. Returns the problems."""
        ended = EndJob(CRASHED)
        while ended.error == CRASHED or ended.stopped:
            assert self.runs < _RUNS_MAX
            self.runs += 1
            self._world = self._next_world()
            ended = self._world.run()
        problems = [f"ended with {ended.error}: {ended.message}"] if ended.error else []
        return problems + disagreements(self.ledger, self._job.total)

    def _next_world(self) -> World:
        policy = JobPolicy(checkpoint_interval_us=self.random.choice([10_000, 25_000]))
        return World(
            self._plan,
            self._store,
            self._time,
            lambda task: SimulatedEnvironment(self._time.now_us, self.random, self._store, task),
            WorldSettings(policy, ChannelLimits(window=self._window), 2_000, events_max=200_000),
            lambda time_us, event: self.events.append(event),
            hook=self._befall,
            layers=Layers(storage=self._storage, ending=self._tear),
        )

    def _befall(self, world: World) -> None:
        if self._faults is not None and world.ended is None:
            self._faults(self, world)

    def _storage(self, process: LocalProcess, inner: Storage) -> Storage:
        if self._at_sinks is None:
            return inner
        return AskedStorage(inner, partial(self._at_sinks, self, self._world, process))

    def _tear(self, number: int) -> None:
        """Writes nothing of a pending write, its log alone, or its log and some of its pieces."""
        process = self._world.processes.get(number)
        wishes = writes(process) if process is not None else []
        if process is not None and wishes and self.random.random() < 0.8:
            self.torn += 1
            sink = process.machine.committing[wishes[0].name]
            assert isinstance(sink, CausalWitness)
            out = self.random.randrange(len(wishes[0].pieces) + 1)
            sink.append(wishes[0].epoch, wishes[0].log, wishes[0].pieces, torn_after=out)

    @property
    def any_writes(self) -> bool:
        """Whether any process is in the middle of a write."""
        return any(writes(process) for process in self._world.processes.values())

    @property
    def rows_shown(self) -> int:
        """Rows of causal sinks."""
        return sum(len(rows) for name, rows in self.ledger.committed.items() if name.endswith("-shown"))

    def count(self, kind: type[CoordinatorEvent]) -> int:
        return sum(isinstance(event, kind) for event in self.events)


def crash(world: World) -> None:
    """All processes die, including the coordinator; storage and output stay."""
    for number in list(world.processes):
        world.end_process(number)
    world.end(EndJob(CRASHED))


def writes(process: LocalProcess) -> list[WriteOutput]:
    """What a process has not written yet of its causal sinks' output."""
    return [work for work in process.unstored if isinstance(work, WriteOutput)]


def running(world: World, *vertices: str) -> list[LocalProcess]:
    """The processes that are tasks of these vertices, or of any."""
    processes = [world.processes[number] for number in sorted(world.processes)]
    found = [p for p in processes if p.link.state is TaskState.RUNNING]
    return [p for p in found if not vertices or p.task.vertex in vertices]
