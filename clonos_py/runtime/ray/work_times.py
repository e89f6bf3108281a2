"""How the thread of a task spends its time: with work, without any, or held back by what lies behind it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from clonos_py.model.counters import ProcessCounters


class WorkTimes:
    """The times of one thread. It calls ``waits`` and ``works`` in turn; any thread may read them meanwhile."""

    def __init__(self, now_us: Callable[[], int]) -> None:
        self._now_us = now_us
        self._began_us: int | None = None
        self._idle_us = self._held_back_us = 0
        self._wait: tuple[int, bool] | None = None
        """When the present wait began, and whether the task is held back."""

    def begin(self) -> None:
        """The thread has started."""
        self._began_us = self._now_us()

    def waits(self, held_back: bool) -> None:
        """The thread has nothing to do; if ``held_back``, since it may not produce."""
        self._wait = self._now_us(), held_back

    def works(self) -> None:
        """The thread goes on after a wait."""
        self._idle_us, self._held_back_us, self._wait = *self._until(self._now_us()), None

    def added_to(self, counters: ProcessCounters) -> ProcessCounters:
        """``counters`` of the same process, with the times so far."""
        if self._began_us is None:
            return counters
        now_us = self._now_us()
        idle_us, held_back_us = self._until(now_us)
        return msgspec.structs.replace(
            counters, alive_us=now_us - self._began_us, idle_us=idle_us, held_back_us=held_back_us
        )

    def _until(self, now_us: int) -> tuple[int, int]:
        wait = self._wait
        if wait is None:
            return self._idle_us, self._held_back_us
        since_us, held_back = wait
        waited_us = max(now_us - since_us, 0)
        return self._idle_us + waited_us * (not held_back), self._held_back_us + waited_us * held_back
