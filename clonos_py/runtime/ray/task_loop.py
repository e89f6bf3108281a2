"""The task thread: steps the task's executor, and waits when there is nothing to do."""

from __future__ import annotations

from collections.abc import Callable
from queue import Empty

from clonos_py.process.contract import ToTask
from clonos_py.runtime.executors.task import TaskExecutor
from clonos_py.runtime.ray.request_loop import InboxLoop

_WAIT_S_MAX = 1.0


class TaskLoop(InboxLoop[ToTask]):
    """Runs a TaskExecutor. ``stop`` closes operators and services, ``abandon`` does not."""

    def __init__(
        self,
        executor: TaskExecutor,
        fail: Callable[[BaseException], None],
        close_services: Callable[[], None],
        now_us: Callable[[], int],
    ) -> None:
        """``fail`` takes an error that ended the task. ``now_us`` is the executor's clock. ``close_services`` is called
        in this thread, which has opened the services: some clients must stay in one thread."""
        super().__init__()
        self._executor, self._fail, self._close_services, self._now_us = executor, fail, close_services, now_us

    def run(self) -> None:
        """Steps the task until stopped, or until the machine raises an error."""
        step = self._executor.step
        try:
            wait_s: float | None = None
            while self._take(wait_s):
                wake_us = step()
                wait_s = 0 if wake_us is None else min(max(0.0, (wake_us - self._now_us()) / 1e6), _WAIT_S_MAX)
            if not self._abandoned:
                self._executor.close()
                self._close_services()
        except BaseException as problem:  # noqa: BLE001 - every error is reported to the coordinator
            self._fail(problem)

    def _take(self, wait_s: float | None) -> bool:
        """Waits for the first item, then offers all items that have arrived. False when the thread is to stop."""
        try:
            item = self._inbox.get(block=wait_s != 0, timeout=wait_s)
            while item is not None:
                self._executor.offer(item)
                item = self._inbox.get_nowait()
        except Empty:
            return True
        return False
