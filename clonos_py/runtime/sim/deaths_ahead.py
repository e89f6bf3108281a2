"""Deaths while processes load state ahead of a deployment: the other faults wait until tasks read input."""

from __future__ import annotations

import random
from collections.abc import Callable

from clonos_py.job.preparation import DEATHS_MAX
from clonos_py.runtime.sim.harsh_world import HarshWorld

_AFTER_MAX = 40
"""Actions between two deaths; a preparation takes some 10 for each process."""
_COORDINATORS_LOST = 0.2


class DeathsAhead:
    """Kills so many processes that the preparation does not fail, and then, by chance, the coordinator."""

    def __init__(self, random_: random.Random, note: Callable[[str], None]) -> None:
        self._random, self._note = random_, note
        self._processes = random_.randint(0, DEATHS_MAX)
        self._coordinator = random_.random() < _COORDINATORS_LOST
        self._after = random_.randint(1, _AFTER_MAX)

    def __call__(self, world: HarshWorld) -> None:
        """Called before each action of a preparation."""
        self._after -= 1
        if self._after > 0 or not world.processes:
            return
        self._after = self._random.randint(1, _AFTER_MAX)
        if self._processes:
            self._processes -= 1
            number = self._random.choice(sorted(world.processes))
            self._note(f"killed process {number}, {world.processes[number].task}, which loads state ahead")
            world.kill(number)
        elif self._coordinator:
            self._coordinator = False
            self._note("the coordinator is lost before the deployment")
            world.lose_coordinator()
