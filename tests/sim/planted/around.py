"""Scenarios around one that finds a planted bug: its job and its faults, at other moments and with other delays.

A bug that few seeds find needs a certain job, and faults at certain moments. A change of the engine that adds an event
shifts the moments of a seed, and most often one of these scenarios still finds the bug.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

from clonos_py.runtime.sim.generator import Scenario

_EARLIER_OR_LATER = 40
"""By how many actions at most a fault moves."""


def around(base: Scenario, count: int) -> Iterator[Scenario]:
    """``count`` scenarios. Every second one has the delays of ``base``, and every second fault moves."""
    for number in range(count):
        random_ = random.Random(f"{number} around {base.seed}")
        faults = tuple(
            replace(fault, after=max(fault.after + random_.randint(-_EARLIER_OR_LATER, _EARLIER_OR_LATER), 0))
            if random_.random() < 0.5
            else fault
            for fault in base.faults
        )
        seed = base.seed if number % 2 == 0 else random_.getrandbits(32)
        yield replace(base, seed=seed, faults=faults)
