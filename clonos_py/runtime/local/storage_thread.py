"""A thread that stores snapshots and writes output while the world of one thread goes on: a broker takes its time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue

Work = Callable[[], Callable[[], None]]


class StorageThread:
    """``do`` is called by the thread of the world. What ``work`` gives back is posted to it: what came of the work."""

    def __init__(self, post: Callable[[Callable[[], None]], None]) -> None:
        self._post = post
        self._inbox: SimpleQueue[Work | None] = SimpleQueue()
        threading.Thread(target=self._run, name="storage", daemon=True).start()

    def do(self, work: Work) -> None:
        """One piece of work after the other."""
        self._inbox.put(work)

    def close(self) -> None:
        """The thread ends after the work at hand; what else it was to do is left undone."""
        with suppress(Empty):
            while True:
                self._inbox.get_nowait()
        self._inbox.put(None)

    def _run(self) -> None:
        while (work := self._inbox.get()) is not None:
            try:
                self._post(work())
            except BaseException as problem:  # noqa: BLE001 - raised where it ends the run
                self._post(partial(_raise, problem))


def _raise(problem: BaseException) -> None:
    raise problem
