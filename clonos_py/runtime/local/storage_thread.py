"""A thread that stores snapshots and writes output while the thread of the world goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue

_CLOSE_S_MAX = 5.0
Work = Callable[[], Callable[[], None]]


class StorageThread:
    """Does work in one thread. The thread of the world calls ``do``; the action that the work returns is posted back to
    it, to deliver the results."""

    def __init__(self, post: Callable[[Callable[[], None]], None]) -> None:
        self._post = post
        self._inbox: SimpleQueue[Work | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="storage", daemon=True)
        self._thread.start()

    def do(self, work: Work) -> None:
        """Adds work. The thread does one piece after the other."""
        self._inbox.put(work)

    def close(self) -> None:
        """Ends the thread after its current work, and drops the rest. Waits for that work for a while: the folder that
        it writes to may be removed next."""
        with suppress(Empty):
            while True:
                self._inbox.get_nowait()
        self._inbox.put(None)
        self._thread.join(_CLOSE_S_MAX)

    def _run(self) -> None:
        while (work := self._inbox.get()) is not None:
            try:
                self._post(work())
            except BaseException as problem:  # noqa: BLE001 - raised where it ends the run
                self._post(partial(_raise, problem))


def _raise(problem: BaseException) -> None:
    raise problem
