"""Simulated jobs that are started again after a crash, with their storage and their output."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import ClassVar

from clonos_py.checkpoint.memory import MemoryStore
from clonos_py.job.events import EndJob, JobPolicy, Report, ReportKind
from clonos_py.runtime.executors.storage import StorageWork
from clonos_py.runtime.processes import LocalProcess
from clonos_py.runtime.sim.run import SimulatedPorts
from clonos_py.runtime.sim.schedule import VirtualTime
from clonos_py.runtime.sim.witness import CausalWitness, Ledger, WitnessJob, disagreements
from clonos_py.runtime.world import Settings, World
from clonos_py.task import instructions as io
from clonos_py.task.events import TaskState
from clonos_py.task.pressure import LinkLimits

CRASHED = "crashed"
_RUNS_MAX = 10


class TearingWorld(World):
    """Processes die in the middle of what they write. ``course`` is asked before sinks do anything."""

    course: Course
    torn: ClassVar[int] = 0

    def _obey(self, process: LocalProcess, instruction: io.Instruction) -> None:
        if isinstance(instruction, io.WriteOutput):
            self.course.writing.setdefault(process.number, []).append(instruction)
        super()._obey(process, instruction)

    def _use_sinks(self, process: LocalProcess, wish: StorageWork) -> None:
        if process.alive and isinstance(wish, io.WriteOutput):
            self.course.writing[process.number].remove(wish)
        if self.course.at_sinks is None or self.course.at_sinks(self, process, wish):
            super()._use_sinks(process, wish)

    def _end_process(self, number: int) -> bool:
        """Nothing of what waits is written, or its log alone, or some of its pieces, too."""
        process, wishes = self.processes.get(number), self.course.writing.pop(number, [])
        random_ = self.course.random
        if process is not None and wishes and random_.random() < 0.8:
            TearingWorld.torn += 1
            sink = process.machine.sinks[wishes[0].name]
            assert isinstance(sink, CausalWitness)
            out = random_.randrange(len(wishes[0].pieces) + 1)
            sink.append(wishes[0].epoch, wishes[0].log, wishes[0].pieces, torn_after=out)
        return super()._end_process(number)

    def crash(self) -> None:
        """Everybody dies, the coordinator too; what is left is storage and output."""
        for number in list(self.processes):
            self._end_process(number)
        self.ended = EndJob(CRASHED)


Faults = Callable[["Course", TearingWorld], None]
AtSinks = Callable[[TearingWorld, LocalProcess, StorageWork], bool]


class Course:
    """All runs of one job. ``faults`` is asked before every action; ``at_sinks`` says whether sinks do what they are
    asked to, and may do something else before or instead."""

    def __init__(
        self, seed: int, job: WitnessJob, faults: Faults | None = None, at_sinks: AtSinks | None = None
    ) -> None:
        self.random = random.Random(seed)
        self.ledger = Ledger()
        self.reports: list[Report] = []
        self.writing: dict[int, list[io.WriteOutput]] = {}
        self.at_sinks = at_sinks
        self.runs = 0
        self._faults, self._job = faults, job
        self._plan = job.plan(self.ledger)
        self._store = MemoryStore(self._plan.job)
        self._time = VirtualTime(self.random)
        self._window = self.random.choice([1, 4, 16])

    def run(self) -> list[str]:
        """To the end, however many runs that takes. What is wrong then."""
        ended = EndJob(CRASHED)
        while ended.error == CRASHED:
            assert self.runs < _RUNS_MAX
            self.runs += 1
            ended = self._world().run()
        problems = [f"ended with {ended.error}: {ended.message}"] if ended.error else []
        return problems + disagreements(self.ledger, self._job.total)

    def _world(self) -> TearingWorld:
        ports = SimulatedPorts(self._time.now_us, self.random, self._store)
        policy = JobPolicy(checkpoint_interval_us=self.random.choice([10_000, 25_000]))
        self.writing.clear()
        world = TearingWorld(
            self._plan,
            self._store,
            self._time,
            lambda task: ports,
            Settings(policy, LinkLimits(window=self._window), 2_000, events_max=200_000),
            lambda time_us, report: self.reports.append(report),
            hook=self._befall,
        )
        world.course = self
        return world

    def _befall(self, world: World) -> None:
        assert isinstance(world, TearingWorld)
        if self._faults is not None and world.ended is None:
            self._faults(self, world)

    @property
    def rows_shown(self) -> int:
        """Rows of causal sinks."""
        return sum(len(rows) for name, rows in self.ledger.committed.items() if name.endswith("-shown"))

    def count(self, what: ReportKind) -> int:
        return sum(report.what is what for report in self.reports)


def running(world: World, *vertices: str) -> list[LocalProcess]:
    """The processes that are tasks of these vertices, or of any."""
    processes = [world.processes[number] for number in sorted(world.processes)]
    found = [p for p in processes if p.link.state is TaskState.RUNNING]
    return [p for p in found if not vertices or p.task.vertex in vertices]
