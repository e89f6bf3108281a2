"""Work that nobody waits for yet, at a lower priority.

Standbys take in each checkpoint right after it, all at once. On few cores that held up the tasks that run for a good
tenth of a second: with the lower priority the 99th percentile of q3's latency at half load is a fifth lower (D15).
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, TypeVar

NICENESS = 10
"""Measured: half of it changes nothing. Who has no privileges can never take it back, hence a thread of its own."""

T = TypeVar("T")


class Background:
    """A thread that lets others go first, where the system knows priorities of threads (Linux). It starts with the
    first work. ``do`` and ``stop`` may be called by any thread. An executor's thread would keep the process from ending
    while storage does not answer; this one is a daemon, as the process's others are."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._started = False
        self._wishes: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()

    def do(self, work: Callable[[], T]) -> T:
        """What ``work`` returns, after all work that came before. Raises what it raises."""
        done: Future[T] = Future()
        with self._lock:
            if not self._started:
                threading.Thread(target=self._run, name=self._name, daemon=True).start()
                self._started = True
        self._wishes.put((work, done))
        return done.result()

    def stop(self) -> None:
        """After all work that came before. There must come none after."""
        self._wishes.put(None)

    def _run(self) -> None:
        _let_others_first()
        while (wish := self._wishes.get()) is not None:
            work, done = wish
            try:
                done.set_result(work())
            except BaseException as problem:  # noqa: BLE001 - it is raised where the result is waited for
                done.set_exception(problem)
            del wish, work, done


def _let_others_first() -> None:
    """This thread, not the process. Some sandboxes forbid it: the work is done all the same."""
    if sys.platform == "linux":
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, 0) + NICENESS)
