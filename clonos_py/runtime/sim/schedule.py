"""Virtual time and seeded delays: a seed decides every run of the simulator."""

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
"""The mean delay by kind of action. Actual delays range from 0 to four times that, so that orders vary."""
_SLOW_LIKE = {"retry": "start"}
"""Kinds that have the slowness of another kind."""


class VirtualTime:
    """A scheduler whose time jumps to the next action."""

    is_alone = True

    def __init__(self, random_: random.Random, slowness: Mapping[str, float] | None = None) -> None:
        self._random = random_
        self.slowness = dict(slowness or {})
        """By kind of action: the factor on its typical delay."""
        self._slow_us: dict[str, int] = {}
        """By kind of action: when its factor was last changed."""
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
        """Multiplies the delays of all later actions of this kind by ``factor``; the inverse factor ends it."""
        self.slowness[kind] = self.slowness.get(kind, 1.0) * factor
        self._slow_us[kind] = self._now_us

    def was_slow(self, kind: str, within_us: int) -> bool:
        """Whether the slowness of this kind was changed within the last ``within_us``."""
        at_us = self._slow_us.get(kind)
        return at_us is not None and self._now_us - at_us <= within_us

    def delay_us(self, kind: str, what: object = None) -> int:
        """Draws a delay, mostly near 0 and sometimes long: the orders that matter come from the extremes."""
        draw = self._random.random()
        return int(self.longest_us(kind) * draw * draw * draw)

    def longest_us(self, kind: str) -> float:
        """The longest delay of an action of this kind."""
        return 4 * TYPICAL_US[kind] * self.slowness.get(_SLOW_LIKE.get(kind, kind), 1.0)
