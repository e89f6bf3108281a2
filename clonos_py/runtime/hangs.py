"""Finds user functions that hang: a thread looks now and then which call another thread is in.

Each call has its own stack frame, so the same frame means the same call. Rows pay nothing for the watch.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable

from clonos_py.task.at_work import at_work

_CHECKS_PER_LIMIT = 16
"""How often the watch looks within the time limit of a call."""
_STOP_S_MAX = 1.0


class HangWatch:
    """Watches one thread, from its own start on until ``stop``."""

    def __init__(self, thread: int, limit_us: int, report: Callable[[str], None]) -> None:
        """``thread``: the identity of the watched thread. The watch calls ``report`` in its own thread, once for each
        call that has lasted for ``limit_us``, with a text that says what hangs where."""
        self._thread, self._limit_s, self._report = thread, limit_us / 1e6, report
        self._stopped = threading.Event()
        self._watcher = threading.Thread(target=self._run, name="watch of functions", daemon=True)
        self._watcher.start()

    def stop(self) -> None:
        """Ends the thread of the watch. Returns before that if ``report`` takes long."""
        self._stopped.set()
        self._watcher.join(_STOP_S_MAX)

    def _run(self) -> None:
        call, since_s, reported = None, 0.0, False
        while not self._stopped.wait(self._limit_s / _CHECKS_PER_LIMIT):
            work, now_s = at_work(sys._current_frames().get(self._thread)), time.monotonic()
            if work is None or work.call is not call:
                call, since_s, reported = work.call if work is not None else None, now_s, False
            elif not reported and now_s - since_s >= self._limit_s:
                reported = True
                lasts = f"{now_s - since_s:.3g} s"
                self._report(f"operator {work.operator!r} has been at work on one row for {lasts}; at {work.place}")
            del work
