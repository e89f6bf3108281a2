"""Those who wait for the end of a job in other processes, and must have read it before its coordinator is gone."""

from __future__ import annotations

import threading


class EndWatchers:
    """The names of those who wait. All methods may be called by any thread."""

    def __init__(self) -> None:
        self._waiting: set[str] = set()
        self._changed = threading.Condition()
        self.any_yet = False
        """Whether anybody has waited."""

    def add(self, watcher: str) -> None:
        """One waits for the end. Adding it again has no effect."""
        with self._changed:
            self._waiting.add(watcher)
            self.any_yet = True

    def remove(self, watcher: str) -> None:
        """One has read the end, or waits no longer."""
        with self._changed:
            self._waiting.discard(watcher)
            self._changed.notify_all()

    def await_none(self, timeout_s: float) -> bool:
        """Returns when nobody waits any more; False if somebody still does after ``timeout_s`` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting, timeout_s)
