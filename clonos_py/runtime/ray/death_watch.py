"""Watches processes of this machine, so that a death is known at once. Ray says so when the memory of the process is
freed and its connections are closed, which takes tens of milliseconds.

Ray also says why, if it has ended the process itself because memory is short. So a death at such a time is left to Ray.
"""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from clonos_py.runtime.ray.node_memory import used_share
from clonos_py.runtime.ray.process_handle import ProcessHandle

_LOOK_S = 0.25
"""How often to look at the memory while nothing dies."""
_SHORT_SHARE = 0.85
"""The share of used memory from which on Ray may be the one that ends a process. By default it does so at 0.95."""
_SHORT_S = 2.0
"""For how long memory counts as short afterwards: the dead process has given its memory back."""


class DeathWatch:
    """One thread for all processes. It starts with the first of them. Where a system has no handles of processes, there
    are none to watch."""

    def __init__(self, died: Callable[[int], object], used_share: Callable[[], float] = used_share) -> None:
        """``died`` is called by the thread, once for each process that has died."""
        self._died, self._used_share = died, used_share
        self._lock = threading.Lock()
        self._watched: dict[int, tuple[int, ProcessHandle]] = {}
        """By descriptor: the number of the process, and its handle."""
        self._epoll: select.epoll | None = None
        self._closed = False
        self._short_until_s = 0.0

    def add(self, number: int, handle: ProcessHandle) -> None:
        """Watches a process until ``remove``."""
        with self._lock:
            self._watched[handle.descriptor] = number, handle
            if self._epoll is None:
                self._epoll = select.epoll()
                threading.Thread(target=self._run, args=(self._epoll,), name="deaths", daemon=True).start()
            self._epoll.register(handle.descriptor, select.EPOLLIN)

    def remove(self, handle: ProcessHandle) -> None:
        """Ends the watch of a process, if there is one. Its handle may be closed afterwards."""
        with self._lock:
            self._remove(handle)

    def _remove(self, handle: ProcessHandle) -> None:
        if self._watched.pop(handle.descriptor, None) is not None and self._epoll is not None:
            self._epoll.unregister(handle.descriptor)

    def close(self) -> None:
        """Ends the watch of all processes."""
        self._closed = True

    def _run(self, epoll: select.epoll) -> None:
        while not self._closed:
            found = epoll.poll(_LOOK_S)
            self._look_at_the_memory()
            for descriptor, _ in found:
                with self._lock:
                    number, handle = self._watched.get(descriptor, (None, None))
                    # The descriptor may have become another process's since it was polled.
                    if number is None or handle is None or not handle.is_ending():
                        continue
                    self._remove(handle)
                if time.monotonic() >= self._short_until_s and not self._closed:
                    self._died(number)

    def _look_at_the_memory(self) -> None:
        with suppress(OSError, ValueError, LookupError):
            if self._used_share() >= _SHORT_SHARE:
                self._short_until_s = time.monotonic() + _SHORT_S
