"""One simulated run of a plan under a seeded schedule of delays and failures."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from clonos_py.checkpoint.memory import MemoryStore
from clonos_py.checkpoint.store import SnapshotStore
from clonos_py.job.events import EndJob, JobPolicy
from clonos_py.model.coordinator_events import CoordinatorEvent, RolledBack
from clonos_py.model.ids import TaskId
from clonos_py.model.plan import PhysicalPlan
from clonos_py.process.contract import ChannelLimits, Observed
from clonos_py.runtime.crash_notes import exits_reported
from clonos_py.runtime.interrupts import interrupts
from clonos_py.runtime.operator_environment import StoredAnswers
from clonos_py.runtime.sim.faults import Faults
from clonos_py.runtime.sim.schedule import VirtualTime
from clonos_py.runtime.sim.story import words
from clonos_py.runtime.world.world import World, WorldSettings


class SimulatedEnvironment(StoredAnswers):
    """The environment of one task: the time of the world, and random seeds and answers that differ in each attempt."""

    def __init__(
        self,
        now_us: Callable[[], int],
        random_: random.Random,
        store: SnapshotStore,
        task: TaskId,
        client: Callable[[str], Any] | None = None,
    ) -> None:
        super().__init__(lambda: store, task)
        self._now_us, self._random, self._client = now_us, random_, client

    def now_us(self) -> int:
        return self._now_us()

    def seed(self) -> int:
        return self._random.getrandbits(63)

    def service(self, name: str) -> Any:
        if self._client is not None:
            return self._client(name)
        return lambda: self._random.getrandbits(62)


@dataclass
class SimulatedRun:
    """The result of a simulated run. ``problems`` is empty if nothing is wrong."""

    seed: int
    ended: EndJob | None = None
    problems: list[str] = field(default_factory=list)
    story: list[str] = field(default_factory=list)
    kills: int = 0
    kills_at_stake: int = 0
    rollbacks: int = 0
    actions: int = 0


Listener = Callable[[int, CoordinatorEvent], None]
Observer = Callable[[int, TaskId, Observed], None]


def simulate_plan(
    plan: PhysicalPlan,
    seed: int,
    kills: int = 3,
    policy: JobPolicy | None = None,
    client: Callable[[str], Any] | None = None,
    listener: Listener = lambda time_us, event: None,
    observer: Observer = lambda time_us, task, observed: None,
    actions_max: int = 200_000,
    actions_expected: int | None = None,
    limits: ChannelLimits | None = None,
    linger_us: int = 2_000,
) -> SimulatedRun:
    """Runs a plan once. ``seed`` decides everything, including the window, and the checkpoint interval unless
    ``policy`` is given. ``actions_expected`` fits the moments of kills to a short run. Rollbacks count as problems,
    except in a rollback job: with full sharing depth none is ever needed."""
    random_ = random.Random(seed)
    outcome = SimulatedRun(seed)
    time = VirtualTime(random_)
    faults = Faults(random_, kills, outcome.story, actions_expected)

    def listen(time_us: int, event: CoordinatorEvent) -> None:
        outcome.story.append(f"{time_us}: {words(event)}")
        outcome.rollbacks += isinstance(event, RolledBack)
        listener(time_us, event)

    chosen = policy or JobPolicy(checkpoint_interval_us=random_.choice([10_000, 25_000, 100_000]))
    chosen = replace(chosen, lineage=f"seed-{seed}")
    window = random_.choice([1, 2, 4, 16])
    limits = replace(limits or ChannelLimits(), window=window)
    settings = WorldSettings(chosen, limits, linger_us=linger_us, events_max=actions_max)
    store = MemoryStore(plan.job)
    environment = lambda task: SimulatedEnvironment(time.now_us, random_, store, task, client)  # noqa: E731
    world = World(plan, store, time, environment, settings, listen, observer, faults)
    try:
        with interrupts(), exits_reported():
            outcome.ended = world.run()
    except AssertionError as problem:
        outcome.problems.append(f"{type(problem).__name__}: {problem}")
    outcome.kills, outcome.kills_at_stake, outcome.actions = faults.done, faults.at_stake, world.actions_done
    if outcome.ended is not None and outcome.ended.error:
        outcome.problems.append(f"ended with {outcome.ended.error}: {outcome.ended.message}")
    if outcome.rollbacks and not plan.rollback:
        outcome.problems.append(f"{outcome.rollbacks} rollbacks")
    return outcome
