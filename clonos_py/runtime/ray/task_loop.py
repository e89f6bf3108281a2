"""The task thread: steps the task's executor, and waits when there is nothing to do."""

from __future__ import annotations

from collections.abc import Callable
from queue import Empty

from clonos_py.process.contract import ToTask
from clonos_py.runtime.executors.task import TaskExecutor
from clonos_py.runtime.ray.request_loop import InboxLoop
from clonos_py.runtime.ray.work_times import WorkTimes

_WAIT_S_MAX = 1.0


class TaskLoop(InboxLoop[ToTask]):
    """Runs a TaskExecutor. ``stop`` closes operators and services, ``abandon`` does not."""

    def __init__(
        self,
        executor: TaskExecutor,
        fail: Callable[[BaseException], None],
        close_services: Callable[[], None],
        now_us: Callable[[], int],
        times: WorkTimes,
    ) -> None:
        """``fail`` takes an error that ended the task. ``now_us`` is the executor's clock. ``times`` is
        told when it waits. ``close_services`` is called in this thread, which has opened the services: some clients
        must stay in one thread."""
        super().__init__()
        self._executor, self._fail, self._close_services, self._now_us = executor, fail, close_services, now_us
        self._times = times

    def run(self) -> None:
        """Steps the task until stopped, or until the machine raises an error."""
        step = self._executor.step
        self._times.begin()
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
            item = self._inbox.get_nowait() if wait_s == 0 else self._await(wait_s)
            while item is not None:
                self._executor.offer(item)
                item = self._inbox.get_nowait()
        except Empty:
            return True
        return False

    def _await(self, wait_s: float | None) -> ToTask | None:
        """Waits for an item, None if the thread is to stop. Raises Empty."""
        self._times.waits(self._executor.machine.held_back)
        try:
            return self._inbox.get(timeout=wait_s)
        finally:
            self._times.works()
