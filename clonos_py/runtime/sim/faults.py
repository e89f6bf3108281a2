"""Faults of simulated runs: a seed decides which process is killed when."""

from __future__ import annotations

import random

from clonos_py.model.ids import Attempt
from clonos_py.process.contract import TaskState
from clonos_py.runtime.world.processes import LocalProcess
from clonos_py.runtime.world.world import World

_RECOVERING = (TaskState.CONNECTING, TaskState.FETCHING_DETERMINANTS, TaskState.REPLAYING)


class Faults:
    """Kills processes at seeded moments. For each kill it draws a plan: a task with many frames at stake, a process
    that is recovering, one that is running meanwhile, or any process; sometimes two at once.

    ``actions_expected``: the length of a short run without failures, in which these plans would seldom match. Then
    moments are drawn within that length, and if no process matches the plan, any task that has begun is killed.
    """

    FRAMES_AT_LEAST = 20

    def __init__(
        self, random_: random.Random, kills: int, story: list[str], actions_expected: int | None = None
    ) -> None:
        self._random, self._story = random_, story
        self._actions_expected = actions_expected
        self._left = kills
        self._plan = ""
        self._not_before = 0
        self.done = 0
        self.at_stake = 0
        """Kills of tasks that had sent or received at least 20 frames since their restart point."""
        self._draw(0)

    def _draw(self, actions_done: int) -> None:
        self._plan = self._random.choice(["loaded", "loaded", "recovering", "recovering", "during", "any"])
        self._not_before = actions_done + self._random.randrange(self._moments(actions_done))

    def _moments(self, actions_done: int) -> int:
        """The number of actions from now within which the next kill is drawn."""
        if self._actions_expected is None:
            return 600
        return max(self._actions_expected * 2 // 3 - actions_done, 10)

    def __call__(self, world: World) -> None:
        if not self._left or world.actions_done < self._not_before or world.ended is not None:
            return
        if world.actions_done > self._not_before + 3_000:
            self._draw(world.actions_done)
        victims = self._victims(world)
        if not victims and self._actions_expected is not None:
            victims = [p for p in world.processes.values() if p.link.state in (TaskState.RUNNING, TaskState.FINISHED)]
        if not victims:
            return
        first = self._random.choice(victims)
        count = min(self._left, 2 if self._random.random() < 0.25 else 1)
        others = [p for p in victims if p is not first]
        for victim in [first, *self._random.sample(others, min(count - 1, len(others)))]:
            self._kill(world, victim)
        self._draw(world.actions_done)
        if self._plan in ("recovering", "during"):
            self._not_before = world.actions_done + self._random.randrange(60)

    def _victims(self, world: World) -> list[LocalProcess]:
        processes = [world.processes[n] for n in sorted(world.processes)]
        if self._plan == "loaded":
            return [p for p in processes if p.link.frames_at_stake >= self.FRAMES_AT_LEAST]
        recovering = [p for p in processes if p.link.state in _RECOVERING and p.link.attempt != Attempt(1, 1)]
        match self._plan:
            case "recovering":
                return recovering
            case "during":
                return [p for p in processes if p not in recovering] if recovering else []
            case _:
                return processes

    def _kill(self, world: World, victim: LocalProcess) -> None:
        self._left -= 1
        self.done += 1
        stake = victim.link.frames_at_stake
        self.at_stake += stake >= self.FRAMES_AT_LEAST
        state = victim.link.state.value
        self._story.append(f"{world.now_us}: killed process {victim.number}, {victim.task}, {state}, {stake} frames")
        world.kill(victim.number)
