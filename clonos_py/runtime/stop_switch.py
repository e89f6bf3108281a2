"""A request to stop a run with a last checkpoint, which another thread makes than the one that drives the run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class StopSwitch:
    """Holds a request until a driver can carry it out. All methods may be called by any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requested = False
        self._carry_out: Callable[[], object] | None = None

    @property
    def requested(self) -> bool:
        return self._requested

    def request(self) -> None:
        """Requests the stop. Further requests have no effect."""
        with self._lock:
            if not self._requested:
                self._requested = True
                if self._carry_out is not None:
                    self._carry_out()

    @contextmanager
    def connected(self, carry_out: Callable[[], object]) -> Iterator[None]:
        """Within the block a request calls ``carry_out``, one made before calls it at once. It must return soon."""
        with self._lock:
            self._carry_out = carry_out
            if self._requested:
                carry_out()
        try:
            yield
        finally:
            with self._lock:
                self._carry_out = None
