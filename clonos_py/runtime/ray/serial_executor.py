"""An executor with one thread, which does not keep the process from ending.

An executor of the standard library waits for its threads when the interpreter ends. So a process would not end while
storage does not answer. This thread is a daemon.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")


class SerialExecutor:
    """Does work in order. The thread starts with the first work. All methods may be called by any thread."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._queue: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Submits ``work``, which is done after all earlier work."""
        done: Future[T] = Future()
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
        self._queue.put((work, done))
        return done

    def do(self, work: Callable[[], T]) -> T:
        """Submits ``work`` and waits for it. Returns what it returns, and raises what it raises."""
        return self.submit(work).result()

    def stop(self, wait_s: float = 0.0) -> None:
        """Ends the thread after all earlier work; waits for that up to ``wait_s``. No work may be submitted later."""
        self._queue.put(None)
        if self._thread is not None and wait_s:
            self._thread.join(wait_s)

    def _run(self) -> None:
        self._begin()
        while (item := self._queue.get()) is not None:
            work, done = item
            try:
                done.set_result(work())
            except BaseException as problem:  # noqa: BLE001 - it is raised where the result is waited for
                done.set_exception(problem)
            del item, work, done

    def _begin(self) -> None:
        """Called in the thread before any work."""
