"""Processing-time timers of a task's operators, in deterministic order: by time, then by operator.

A timer is set for a time of day. That clock may be set back, by an hour for example, or the clock of a replacement may
be behind that of its predecessor. A timer due in ten seconds must not fire an hour late. So each timer also has a limit
on the task's steady clock, after the time that was left when the operator set it. It fires at whichever comes first.
The firing is logged; which of the two clocks caused it is not.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Sequence

_GRACE_US = 10_000
"""How much later the limit is than the time of day implies. The two clocks are not read at the same moment, and as long
as no clock is set, no timer may fire early."""


class Timers:
    """The timers of one task. A timer is (time of day, operator number); setting it twice has no further effect."""

    def __init__(self, time_of_day: Callable[[], int]) -> None:
        self._time_of_day = time_of_day
        self.clear()

    def clear(self) -> None:
        self._timers: list[tuple[int, int]] = []
        self._limits: dict[tuple[int, int], int] = {}
        self._left_us: dict[tuple[int, int], int] = {}
        """By timer set since the steady clock was last read: the time that was left when it was set."""
        self._looked_us = 0

    @property
    def all(self) -> list[tuple[int, int]]:
        return list(self._timers)

    @property
    def left_us(self) -> list[int]:
        """By timer: the time until its limit, without the grace. It does not depend on the time of day, which may have
        been set since, or which the operator may have read from another clock."""
        return [
            self._left_us[timer] if timer in self._left_us else self._limits[timer] - _GRACE_US - self._looked_us
            for timer in self._timers
        ]

    def set(self, operator: int, at_us: int, read_us: int | None = None) -> None:
        """Sets a timer. ``read_us``: the time of day that the operator last read, live or from the log; None: the
        current one."""
        if (at_us, operator) not in self._timers:
            insort(self._timers, (at_us, operator))
            self._left_us[at_us, operator] = at_us - (self._time_of_day() if read_us is None else read_us)

    def restore(self, timers: Sequence[tuple[int, int]], left_us: Sequence[int]) -> None:
        """Restores the values that ``all`` and ``left_us`` had when the snapshot was taken."""
        self.clear()
        self._timers = sorted(timers)
        self._left_us = dict(zip(timers, left_us, strict=True))

    def remove(self, operator: int, at_us: int) -> None:
        timer = at_us, operator
        if timer in self._timers:
            self._timers.remove(timer)
            self._limits.pop(timer, None)
            self._left_us.pop(timer, None)

    def wake_us(self, now_us: int) -> int | None:
        """When the next timer fires, on the steady clock (as ``now_us``); None if no timer is set."""
        if not self._timers:
            return None
        self._limit(now_us)
        left_us = self._timers[0][0] - self._time_of_day()
        return min(now_us + left_us, *self._limits.values())

    def due(self, now_us: int) -> tuple[int, int] | None:
        """The first timer whose time of day or limit has been reached; None if there is none."""
        if not self._timers:
            return None
        self._limit(now_us)
        if self._timers[0][0] <= self._time_of_day():
            return self._timers[0]
        return min((timer for timer, limit_us in self._limits.items() if limit_us <= now_us), default=None)

    def _limit(self, now_us: int) -> None:
        self._looked_us = now_us
        self._limits.update((timer, now_us + left_us + _GRACE_US) for timer, left_us in self._left_us.items())
        self._left_us.clear()
