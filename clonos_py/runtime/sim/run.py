"""One simulated run of the two-witness job under a seeded plan of faults."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from clonos_py.checkpoint.memory import MemoryStore
from clonos_py.job.events import EndJob, Happening, JobPolicy, Report
from clonos_py.runtime.sim.schedule import VirtualTime
from clonos_py.runtime.sim.witness import Ledger, WitnessJob, disagreements
from clonos_py.runtime.world import Settings, World
from clonos_py.task.link import LinkLimits


@dataclass(frozen=True)
class SimulatedPorts:
    """Time of the world, and randomness and answers that no two attempts get alike."""

    now: Callable[[], int]
    random: random.Random

    def now_us(self) -> int:
        return self.now()

    def seed(self) -> int:
        return self.random.getrandbits(63)

    def service(self, name: str) -> Any:
        return lambda: self.random.getrandbits(62)


@dataclass
class Outcome:
    """What a simulated run showed."""

    seed: int
    ended: EndJob | None = None
    problems: list[str] = field(default_factory=list)
    story: list[str] = field(default_factory=list)
    kills: int = 0
    rollbacks: int = 0
    actions: int = 0


class Faults:
    """Kills processes at seeded moments: any role, any state, also while others recover."""

    def __init__(self, random_: random.Random, kills: int, story: list[str]) -> None:
        self._random, self._story = random_, story
        self._left = kills
        self._next = self._pause()
        self.done = 0

    def _pause(self) -> int:
        return int(self._random.expovariate(1 / 400)) if self._random.random() < 0.6 else self._random.randrange(3_000)

    def __call__(self, world: World) -> None:
        if not self._left or world.actions_done < self._next or world.ended is not None:
            return
        self._left -= 1
        # sometimes the next kill follows at once: neighbours, or the replacement itself
        self._next = world.actions_done + (self._random.randrange(30) if self._random.random() < 0.4 else self._pause())
        victims = sorted(world.processes)
        if not victims:
            return
        victim = world.processes[self._random.choice(victims)]
        self.done += 1
        state = victim.link.state.value
        self._story.append(f"{world.now_us}: killed process {victim.number}, {victim.task}, {state}")
        world.kill(victim.number)


def simulate(seed: int, job: WitnessJob = WitnessJob(), kills: int = 3) -> Outcome:  # noqa: B008 - frozen
    """Runs the job once. Everything is decided by ``seed``."""
    random_ = random.Random(seed)
    outcome = Outcome(seed)
    ledger = Ledger()
    time = VirtualTime(random_)
    faults = Faults(random_, kills, outcome.story)

    def listen(time_us: int, report: Report) -> None:
        outcome.story.append(f"{time_us}: {report.what.value} {report.task or ''} {dict(report.detail)}")
        if report.what is Happening.ROLLED_BACK:
            outcome.rollbacks += 1

    policy = JobPolicy(checkpoint_interval_us=random_.choice([8_000, 20_000, 50_000]))
    settings = Settings(policy, LinkLimits(window=random_.choice([1, 2, 4, 16])), linger_us=2_000, events_max=200_000)
    ports = SimulatedPorts(time.now_us, random_)
    world = World(
        job.plan(ledger), MemoryStore("witness"), time, lambda task: ports, settings, listener=listen, hook=faults
    )
    try:
        outcome.ended = world.run()
    except AssertionError as problem:
        outcome.problems.append(str(problem))
    outcome.kills, outcome.actions = faults.done, world.actions_done
    if outcome.ended is not None and outcome.ended.error:
        outcome.problems.append(f"ended with {outcome.ended.error}: {outcome.ended.message}")
    if outcome.rollbacks:
        outcome.problems.append(f"{outcome.rollbacks} rollbacks")
    outcome.problems.extend(disagreements(ledger, job.total))
    return outcome
