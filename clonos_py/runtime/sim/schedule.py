"""Virtual time and seeded delays: every run of the simulator is decided by its seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

TYPICAL_US: Mapping[str, int] = {
    "network": 200,
    "queue": 20,
    "control": 1_000,
    "disk": 5_000,
    "start": 50_000,
    "retry": 50_000,
    "step": 100,
    "detect": 15_000,
    "call": 3_000,
}
"""Mean delay by kind of action; actual ones are spread from nothing to many times that, so that orders vary."""
_SLOW_LIKE = {"retry": "start"}
"""Kinds that are as slow as another one is."""


class VirtualTime:
    """A scheduler whose time jumps to the next action."""

    is_alone = True

    def __init__(self, random_: random.Random, slowness: Mapping[str, float] | None = None) -> None:
        self._random = random_
        self.slowness = dict(slowness or {})
        """By kind of action: how many times as long it takes as is typical."""
        self._slow_us: dict[str, int] = {}
        """By kind of action: when it was last made slower or faster."""
        self._now_us = 1_700_000_000_000_000

    def now_us(self) -> int:
        return self._now_us

    def wait_until(self, time_us: int) -> int:
        if time_us > self._now_us:
            self._now_us = time_us
        return self._now_us

    def arrived(self) -> Sequence[Callable[[], None]]:
        return ()

    def slow(self, kind: str, factor: float) -> None:
        """From now on all actions of this kind take so many times as long; with a fraction it is over."""
        self.slowness[kind] = self.slowness.get(kind, 1.0) * factor
        self._slow_us[kind] = self._now_us

    def was_slow(self, kind: str, within_us: int) -> bool:
        """Whether actions of this kind have been made slow, or were until then, within so much time."""
        at_us = self._slow_us.get(kind)
        return at_us is not None and self._now_us - at_us <= within_us

    def delay_us(self, kind: str, what: object = None) -> int:
        """Mostly near nothing, sometimes long: the orders that matter come from the extremes."""
        draw = self._random.random()
        slowness = self.slowness.get(_SLOW_LIKE.get(kind, kind), 1.0)
        return int(TYPICAL_US[kind] * slowness * 4 * draw * draw * draw)
