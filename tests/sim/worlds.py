"""Simulated runs of the witness job in which the test decides which process dies when."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import TypeVar

from clonos_py.checkpoint.memory import MemoryStore
from clonos_py.job.events import EndJob, JobPolicy
from clonos_py.model.coordinator_events import CoordinatorEvent
from clonos_py.model.ids import TaskId
from clonos_py.process.contract import ChannelLimits, TaskState
from clonos_py.runtime.sim.run import SimulatedEnvironment
from clonos_py.runtime.sim.schedule import VirtualTime
from clonos_py.runtime.world.processes import LocalProcess
from clonos_py.runtime.world.world import World, WorldSettings
from tests.witness import WitnessJob, WitnessLedger

Kind = TypeVar("Kind", bound=CoordinatorEvent)
INTERVAL_US = 25_000
N, E, L, R = (TaskId(name, 0) for name in ("numbers", "enrich", "left", "rank"))
"""The first tasks of the witness job's vertices."""


@dataclass
class Run:
    """The result of a run."""

    ledger: WitnessLedger = field(default_factory=WitnessLedger)
    events: list[CoordinatorEvent] = field(default_factory=list)
    ended: EndJob | None = None
    kills: int = 0

    def of(self, kind: type[Kind]) -> list[Kind]:
        return [event for event in self.events if isinstance(event, kind)]

    def ids(self, witness: str) -> list[int]:
        return sorted(row["id"] for row in self.ledger.rows(witness))


def run(seed: int, job: WitnessJob, faults: Callable[[World, Run], None], policy: JobPolicy | None = None) -> Run:
    """Runs to the end. ``faults`` is called before every action."""
    random_ = random.Random(seed)
    time = VirtualTime(random_)
    made = Run()
    chosen = policy or JobPolicy(checkpoint_interval_us=INTERVAL_US)
    settings = WorldSettings(
        chosen, ChannelLimits(window=random_.choice([1, 4, 16])), linger_us=2_000, events_max=400_000
    )
    plan = job.plan(made.ledger)
    store = MemoryStore(plan.job)
    world = World(
        plan,
        store,
        time,
        lambda task: SimulatedEnvironment(time.now_us, random_, store, task),
        settings,
        lambda time_us, event: made.events.append(event),
        hook=lambda world: faults(world, made),
    )
    made.ended = world.run()
    return made


def active(world: World) -> list[LocalProcess]:
    """The processes that are tasks, or have been promoted."""
    return [world.processes[n] for n in sorted(world.processes) if world.processes[n].link.attempt is not None]


def calm(world: World) -> bool:
    """Whether every task runs and has caught up with its predecessor."""
    up = [p for p in active(world) if p.link.state in (TaskState.RUNNING, TaskState.FINISHED)]
    return {p.task for p in up} == set(world.plan.tasks) and not any(p.link.store.incomplete for p in up)


class KillTogether:
    """Kills these tasks in one moment, ``times`` times, each time when all tasks run, have caught up and
    retain enough frames."""

    def __init__(self, tasks: Collection[TaskId], times: int = 1, frames_at_least: int = 6, pause: int = 0) -> None:
        """``pause``: the least number of actions before each time."""
        self._tasks, self._left, self._frames_at_least = tasks, times, frames_at_least
        self._pause = self._not_before = pause

    def __call__(self, world: World, made: Run) -> None:
        if not self._left or world.ended is not None or world.actions_done < self._not_before or not calm(world):
            return
        owners = {p.task: p for p in active(world)}
        if all(p.link.state is TaskState.RUNNING for p in owners.values()) and all(
            owners[task].link.frames_at_stake >= self._frames_at_least for task in world.plan.tasks
        ):
            self._left -= 1
            self._not_before = world.actions_done + self._pause
            made.kills += len(self._tasks)
            for task in sorted(self._tasks):
                world.kill(owners[task].number)


class KillOneAtATime:
    """Kills running tasks one at a time, again and again, each time when all run and have caught up."""

    def __init__(self, seed: int, times: int) -> None:
        self._random, self._left = random.Random(seed), times
        self._not_before = 0

    def __call__(self, world: World, made: Run) -> None:
        if not self._left or world.ended is not None or world.actions_done < self._not_before or not calm(world):
            return
        self._left -= 1
        made.kills += 1
        world.kill(self._random.choice(active(world)).number)
        self._not_before = world.actions_done + self._random.randrange(20, 300)


class KillBehind:
    """Kills ``first`` when all tasks run and have caught up, and ``second`` as soon as the replacement of ``first``
    has been promoted and still lacks logs that its predecessor had."""

    def __init__(self, first: TaskId, second: TaskId) -> None:
        self._together, self._second, self._left = KillTogether([first]), second, True
        self._first = first

    def __call__(self, world: World, made: Run) -> None:
        self._together(world, made)
        owners = {p.task: p for p in active(world)}
        replacement = owners.get(self._first)
        if self._left and made.kills and replacement is not None and replacement.link.store.incomplete:
            self._left = False
            made.kills += 1
            world.kill(owners[self._second].number)
