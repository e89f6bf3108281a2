"""Processing-time timers of a task's operators, in a deterministic order: by time, then by operator.

A timer is set for a time of day. The time of day may be set back, by an hour say, or the clock of a replacement may be
behind that of its predecessor: a timer that was to come in ten seconds must not come an hour late. So each timer also
has a limit on the task's steady clock: when as much time has passed as was left for the operator that set it. It fires
at whichever comes first. When it fires is logged; how it came to is not.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Sequence

_GRACE_US = 10_000
"""The limit is so much later than the time of day would have it: two clocks are never read at the same moment, and in
ordinary times no timer is to fire before its time."""


class Timers:
    """A timer is (time of day, operator number); setting it twice is setting it once."""

    def __init__(self, time_of_day: Callable[[], int]) -> None:
        self._time_of_day = time_of_day
        self.clear()

    def clear(self) -> None:
        self._timers: list[tuple[int, int]] = []
        self._limits: dict[tuple[int, int], int] = {}
        self._left_us: dict[tuple[int, int], int] = {}
        """Of those that were set since the task looked at its clock last: how much time was left then."""
        self._looked_us = 0

    @property
    def all(self) -> list[tuple[int, int]]:
        return list(self._timers)

    @property
    def left_us(self) -> list[int]:
        """By timer: the time until its limit, without the grace. The time of day does not count: it may have been set
        since, or the operator that set the timer had another."""
        return [
            self._left_us[timer] if timer in self._left_us else self._limits[timer] - _GRACE_US - self._looked_us
            for timer in self._timers
        ]

    def set(self, operator: int, at_us: int, told_us: int | None = None) -> None:
        """``told_us``: the time of day that the operator was given when it set the timer, perhaps by a log; None: it is
        that of now."""
        if (at_us, operator) not in self._timers:
            insort(self._timers, (at_us, operator))
            self._left_us[at_us, operator] = at_us - (self._time_of_day() if told_us is None else told_us)

    def restore(self, timers: Sequence[tuple[int, int]], left_us: Sequence[int]) -> None:
        """As ``all`` and ``left_us`` had them when a snapshot was taken."""
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
        """When the next timer fires, by the steady clock that ``now_us`` is of; None if there is none."""
        if not self._timers:
            return None
        self._limit(now_us)
        left_us = self._timers[0][0] - self._time_of_day()
        return min(now_us + left_us, *self._limits.values())

    def due(self, now_us: int) -> tuple[int, int] | None:
        """The first timer whose time has come, or whose limit has."""
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
