"""Processing-time timers of a task's operators, in a deterministic order: by time, then by operator."""

from __future__ import annotations

from bisect import insort


class Timers:
    """A timer is (time, operator number); setting it twice is setting it once."""

    def __init__(self) -> None:
        self._timers: list[tuple[int, int]] = []

    def clear(self) -> None:
        self._timers = []

    @property
    def all(self) -> list[tuple[int, int]]:
        return list(self._timers)

    def set(self, operator: int, at_us: int) -> None:
        if (at_us, operator) not in self._timers:
            insort(self._timers, (at_us, operator))

    def remove(self, operator: int, at_us: int) -> None:
        if (at_us, operator) in self._timers:
            self._timers.remove((at_us, operator))

    @property
    def next_us(self) -> int | None:
        return self._timers[0][0] if self._timers else None

    def due(self, now_us: int) -> tuple[int, int] | None:
        """The first timer whose time has come."""
        return self._timers[0] if self._timers and self._timers[0][0] <= now_us else None
