"""The events of the runs that one driver drives, one after the other, on their way to the listener of each."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from clonos_py.observe.events import Event, Listener


class RunEvents:
    """Joins the events of the run itself with those that other threads add. A listener is called by one thread at a
    time."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._listener: Listener | None = None
        self._began_s = 0.0
        self._waiting: list[Event] = []

    @contextmanager
    def of_run(self, listener: Listener) -> Iterator[Listener]:
        """Within the block events go to this listener. Gives the listener for those of the run."""

        def listen(at_us: int, event: Event) -> None:
            with self._lock:
                listener(at_us, event)

        with self._lock:
            self._listener, self._began_s = listener, time.monotonic()
            waiting, self._waiting = self._waiting, []
            for event in waiting:
                self.add(event)
        try:
            yield listen
        finally:
            with self._lock:
                self._listener = None

    def add(self, event: Event) -> None:
        """Adds an event that happens now. Between two runs it waits for the next one. Any thread may call it."""
        with self._lock:
            if self._listener is None:
                self._waiting.append(event)
            else:
                self._listener(round((time.monotonic() - self._began_s) * 1e6), event)
