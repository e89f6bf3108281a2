"""Silent processes that use their processor: native code that lets no other thread run keeps them from answering.

A regular expression, a sort or a library may hold Python's interpreter lock for minutes. Such a process has not failed,
and its replacement would be as silent. One that is stopped, or waits for a lock, uses no processor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

_USED_SHARE = 20
"""A process that is at work uses one part in so many of the time at least, however many share the processors."""


class _Look(NamedTuple):
    at_us: int
    cpu_us: int


class Busy:
    """Of the processes of one job. ``silence_us``: those that have said nothing for so long are looked at, as often."""

    def __init__(self, silence_us: int) -> None:
        self._silence_us = silence_us
        self._last_seen_us: dict[int, int] = {}
        self._looks: dict[int, _Look] = {}

    def seen(self, number: int, now_us: int) -> None:
        """A process has said something."""
        self._last_seen_us[number] = now_us
        self._looks.pop(number, None)

    def forget(self, number: int) -> None:
        self._last_seen_us.pop(number, None)
        self._looks.pop(number, None)

    def at_work(self, now_us: int, cpu_us: Callable[[int], int | None]) -> list[int]:
        """The silent processes that have been at work since they were looked at last. ``cpu_us``: the processor time
        that a process has used, None where that cannot be seen."""
        found = []
        for number, last_seen_us in self._last_seen_us.items():
            before = self._looks.get(number)
            if now_us - (before.at_us if before else last_seen_us) < self._silence_us or not self._silence_us:
                continue
            if (used_us := cpu_us(number)) is None:
                continue
            if before and (used_us - before.cpu_us) * _USED_SHARE >= now_us - before.at_us:
                found.append(number)
            self._looks[number] = _Look(now_us, used_us)
        return found
