"""A change of the parallelism of a run, between the thread that drives the run and those that ask for it.

[*] --begun--> PREPARING --its processes hold state--> STOPPING --the run has stopped--> STARTING
STARTING --all tasks run--> [*]
any --the run has ended, or goes on as before--> [*]
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

from clonos_py.model.errors import ClusterError

L = TypeVar("L")


class Rescaling(Generic[L]):
    """At most one change at a time. ``L``: what follows the run that stops."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._begun = self._taken = False
        self._following: L | None = None
        self._stopping_s = 0.0
        self._outcome: float | str | None = None
        self._over: str | None = None

    # ---- those who ask

    @contextmanager
    def begun(self) -> Iterator[Callable[[L, Callable[[], None]], float | str]]:
        """Begins a change. Gives a function that stops the run, which ``following`` then follows, and waits until that
        runs. It returns the seconds between, or why it does not follow. Raises ClusterError if there is a change."""
        with self._changed:
            if self._begun:
                raise ClusterError("the run is being rescaled already: ask again when it runs")
            self._begun, self._outcome = True, None
        try:
            yield self._carry_out
        finally:
            with self._changed:
                self._begun = self._taken = False
                self._following = None

    def _carry_out(self, following: L, stop: Callable[[], None]) -> float | str:
        with self._changed:
            self._following, self._stopping_s = following, time.monotonic()
        stop()
        with self._changed:
            self._changed.wait_for(lambda: self._outcome is not None or self._over is not None)
            return self._outcome if self._outcome is not None else self._over or ""

    # ---- the thread that drives the run

    def take(self) -> L | None:
        """What follows the run that has stopped; None if nothing does."""
        with self._changed:
            following, self._following = self._following, None
            self._taken = following is not None
            return following

    def deployed(self) -> float | None:
        """All tasks of a run have started. Returns the seconds since the run before was asked to stop, if it has
        followed one."""
        with self._changed:
            if not self._taken:
                return None
            self._taken = False
            pause_s = time.monotonic() - self._stopping_s
            self._settle(pause_s)
            return pause_s

    def failed(self, problem: str) -> None:
        """What was to follow does not run, and the run goes on as before."""
        with self._changed:
            self._taken = False
            self._settle(problem)

    def ended(self, how: str) -> None:
        """The run has ended."""
        with self._changed:
            self._over = how
            self._changed.notify_all()

    def _settle(self, outcome: float | str) -> None:
        self._outcome = outcome
        self._changed.notify_all()
