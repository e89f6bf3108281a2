"""The task thread: steps the task's machine, and waits when there is nothing to do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from queue import Empty, SimpleQueue

from clonos_py.model.calls import Call
from clonos_py.runtime.ray.background import Background
from clonos_py.task.events import FromTask, TakeState, ToTask
from clonos_py.task.machine import TaskMachine

_WAIT_S_MAX = 1.0


class TaskLoop:
    """Owns a TaskMachine. ``run`` is the thread; ``put`` and ``stop`` may be called by any thread."""

    def __init__(
        self,
        machine: TaskMachine,
        produce: Callable[[Sequence[FromTask]], None],
        fail: Callable[[BaseException], None],
        close_services: Callable[[], None],
        call: Callable[[Call, Callable[[ToTask], None]], None],
        background: Background,
        now_us: Callable[[], int],
    ) -> None:
        """``produce`` takes what each step gave and may wait; ``fail`` takes what ended the task; ``call`` starts one
        whose answer is to be ``put``; ``background`` takes in state that nobody waits for; ``now_us``
        is a clock that is never set. Services are closed where they were opened, in this thread: some clients insist on
        it."""
        self._machine, self._produce, self._fail, self._close_services = machine, produce, fail, close_services
        self._call, self._background, self._now_us = call, background, now_us
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
        try:
            wait_s: float | None = None
            while self._take(wait_s):
                wait_s = self._step()
            if not self._abandoned:
                self._machine.close()
                self._close_services()
        except BaseException as problem:  # noqa: BLE001 - whatever it is, the coordinator must know
            self._fail(problem)

    def _take(self, wait_s: float | None) -> bool:
        """Offers all that has come, after waiting for the first of it; False when it is time to stop."""
        try:
            item = self._inbox.get(block=wait_s != 0, timeout=wait_s)
            while item is not None:
                self._offer(item)
                item = self._inbox.get_nowait()
        except Empty:
            return True
        return False

    def _offer(self, item: ToTask) -> None:
        if isinstance(item, TakeState) and item.ahead:
            self._background.do(partial(self._machine.offer, item))
        else:
            self._machine.offer(item)

    def _step(self) -> float | None:
        """One event. How long to wait before the next: 0 not at all, None until something comes."""
        outcome = self._machine.step(self._now_us())
        if outcome.events:
            self._produce(outcome.events)
        for call in outcome.calls:
            self._call(call, self.put)
        if outcome.wake_us is None:
            return 0
        return min(max(0.0, (outcome.wake_us - self._now_us()) / 1e6), _WAIT_S_MAX)
