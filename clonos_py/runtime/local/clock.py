"""Real time for a world in one thread: actions have no delays, and waiting is sleeping."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue

from clonos_py.runtime.clock import SteadyClock

_WAIT_S_MAX = 3_600.0


class RealTime:
    """A scheduler on a steady clock. ``post`` may be called by any thread."""

    is_alone = False

    def __init__(self) -> None:
        self._posted: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._arrived: list[Callable[[], None]] = []
        self._clock = SteadyClock.start()

    def now_us(self) -> int:
        return self._clock.now_us()

    def wait_until(self, time_us: int) -> int:
        now_us = self.now_us()
        if now_us >= time_us or self._arrived:
            return now_us
        with suppress(Empty):
            self._arrived.append(self._posted.get(timeout=min((time_us - now_us) / 1e6, _WAIT_S_MAX)))
        return self.now_us()

    def delay_us(self, kind: str, what: object = None) -> int:
        return 0

    def post(self, action: Callable[[], None]) -> None:
        """Adds an action for the thread of the world, and ends ``wait_until`` if it waits."""
        self._posted.put(action)

    def arrived(self) -> list[Callable[[], None]]:
        while not self._posted.empty():
            self._arrived.append(self._posted.get())
        arrived, self._arrived = self._arrived, []
        return arrived
