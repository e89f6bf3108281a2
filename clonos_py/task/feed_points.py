"""When a task takes feed points for its standbys (E17).

A feed point is an event of the log: pending output is cut, and the next query of the time or of a random number gets a
new answer, since a standby does not get these. The task takes one when its standbys have the last one, the feed
interval has passed, and it has worked since. It takes none while it aligns barriers: blocked channels are no part of
its progress.
"""

from __future__ import annotations


class FeedPoints:
    """The feed points of one task."""

    def __init__(self, interval_us: int) -> None:
        self._interval_us = interval_us
        self._requested = False
        self._next_us = 0
        self._last_offset = -1
        self._taken_us: int | None = None
        self._had_us: int | None = None
        """When the point was taken that the standbys had before they loaded the last one."""

    def request(self) -> None:
        """The standbys have the last feed point."""
        self._requested = True

    def lag_us(self, now_us: int) -> int | None:
        """How far the standbys were behind when they loaded the last point; None if none was loaded since the last
        call, or it was the first."""
        if not self._requested or self._had_us == self._taken_us:
            return None
        had_us, self._had_us = self._had_us, self._taken_us
        return None if had_us is None else now_us - had_us

    def due(self, now_us: int, offset: int) -> bool:
        """Whether to take a feed point now. ``offset``: the end of the task's log."""
        return self._requested and offset != self._last_offset and now_us >= self._next_us

    def taken(self, now_us: int, offset: int) -> None:
        """A feed point was taken, and logged below ``offset``."""
        self._requested, self._next_us, self._last_offset = False, now_us + self._interval_us, offset
        self._taken_us = now_us

    def wake_us(self, offset: int) -> int | None:
        """When a feed point is due; None if there is nothing to feed, or no standby waits for it."""
        return self._next_us if self._requested and offset != self._last_offset else None
