"""Processes for which no node has room: they are tried again, since nodes come and other actors end, which Ray reports
to nobody."""

from __future__ import annotations

import threading
from collections.abc import Callable

from clonos_py.job.events import StartProcess

_AGAIN_S = 1.0


class RoomWaits:
    """Tries requests again in a thread of its own, which runs while there are any."""

    def __init__(self, try_start: Callable[[StartProcess], bool], again_s: float = _AGAIN_S) -> None:
        """``try_start`` returns whether the request need not be tried again."""
        self._try_start, self._again_s = try_start, again_s
        self._requests: list[StartProcess] = []
        self._lock = threading.Lock()
        self._closed = threading.Event()

    def add(self, request: StartProcess) -> None:
        with self._lock:
            self._requests.append(request)
            if len(self._requests) == 1:
                threading.Thread(target=self._run, name="waiting for room", daemon=True).start()

    def close(self) -> None:
        """Nothing is tried any more."""
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.wait(self._again_s):
            done = [request for request in list(self._requests) if self._try_start(request)]
            with self._lock:
                self._requests = [request for request in self._requests if request not in done]
                if not self._requests:
                    return
