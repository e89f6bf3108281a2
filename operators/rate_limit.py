"""A limit to the number of calls per second. It reads no clock: callers state the time, which the task has logged."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from math import ceil, floor


class RateLimit:
    """In any stretch of a second at most ``rate`` calls begin; below one per second, one in ``1 / rate`` seconds."""

    def __init__(self, rate: float, begun_us: Iterable[int] = ()) -> None:
        """``begun_us``: see ``begun_us``; of several tasks that are merged, those of all, in order."""
        count = max(1, floor(rate))
        self._window_us = ceil(count * 1_000_000 / rate)
        self._begun_us = deque(begun_us, maxlen=count)

    @property
    def begun_us(self) -> list[int]:
        """For a snapshot: when the last calls began."""
        return list(self._begun_us)

    def take(self, now_us: int) -> int:
        """0 if a call may begin now; it is counted. Otherwise the time until one may, in microseconds."""
        if self._begun_us and self._begun_us[-1] > now_us:
            self._begun_us.clear()  # the time of day was set back
        if len(self._begun_us) == self._begun_us.maxlen and (wait := self._begun_us[0] + self._window_us - now_us) > 0:
            return wait
        self._begun_us.append(now_us)
        return 0
