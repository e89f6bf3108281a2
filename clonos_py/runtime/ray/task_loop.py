"""The task thread: steps the task's executor, and waits when there is nothing to do."""

from __future__ import annotations

from collections.abc import Callable
from queue import Empty, SimpleQueue

from clonos_py.process.contract import ToTask
from clonos_py.runtime.executors.task import TaskExecutor

_WAIT_S_MAX = 1.0


class TaskLoop:
    """Runs a TaskExecutor. ``run`` is the thread; ``put`` and ``stop`` may be called by any thread."""

    def __init__(
        self,
        executor: TaskExecutor,
        fail: Callable[[BaseException], None],
        close_services: Callable[[], None],
        now_us: Callable[[], int],
    ) -> None:
        """``fail`` takes what ended the task; ``now_us`` is the executor's clock. Services are closed where they were
        opened, in this thread: some clients insist on it."""
        self._executor, self._fail, self._close_services, self._now_us = executor, fail, close_services, now_us
        self._inbox: SimpleQueue[ToTask | None] = SimpleQueue()
        self._abandoned = False

    def put(self, item: ToTask) -> None:
        self._inbox.put(item)

    def stop(self) -> None:
        """In order: operators and services are closed."""
        self._inbox.put(None)

    def abandon(self) -> None:
        """As it is: nothing is closed."""
        self._abandoned = True
        self._inbox.put(None)

    def run(self) -> None:
        """Until stopped, or until the machine raises."""
        step = self._executor.step
        try:
            wait_s: float | None = None
            while self._take(wait_s):
                wake_us = step()
                wait_s = 0 if wake_us is None else min(max(0.0, (wake_us - self._now_us()) / 1e6), _WAIT_S_MAX)
            if not self._abandoned:
                self._executor.close()
                self._close_services()
        except BaseException as problem:  # noqa: BLE001 - whatever it is, the coordinator must know
            self._fail(problem)

    def _take(self, wait_s: float | None) -> bool:
        """Offers all that has come, after waiting for the first of it; False when it is time to stop."""
        try:
            item = self._inbox.get(block=wait_s != 0, timeout=wait_s)
            while item is not None:
                self._executor.offer(item)
                item = self._inbox.get_nowait()
        except Empty:
            return True
        return False
