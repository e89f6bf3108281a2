"""The scheduled actions of a world, in the order of time: delays, and queues that keep an order."""

from __future__ import annotations

import heapq
import sys
from collections.abc import Callable, Hashable, Sequence
from typing import Protocol

from clonos_py.model.times import MAX_TIME


class Scheduler(Protocol):
    """Supplies time, delays of actions, and events from outside."""

    is_alone: bool
    """Whether no actions arrive from outside the world."""

    def now_us(self) -> int: ...

    def wait_until(self, time_us: int) -> int:
        """Waits for ``time_us`` or for an arrival, and returns the time then. Virtual time jumps, real time sleeps."""
        ...

    def delay_us(self, kind: str, what: object = None) -> int:
        """The delay of an action of this kind: network, queue, control, disk, start, step, detect, call. ``what`` is
        the thing moved or written, for schedulers whose delays depend on its size."""
        ...

    def arrived(self) -> Sequence[Callable[[], None]]:
        """The actions that have arrived from outside the world since the last call. An arrival ends ``wait_until``."""
        ...


class Actions:
    """Performs actions one by one. Each queue is FIFO, like a socket. Between queues, the delays decide the order."""

    def __init__(self, scheduler: Scheduler, before: Callable[[], None], done_max: int | None) -> None:
        """``before`` is called before every action. A world with more than ``done_max`` actions counts as hung, which
        is a defect."""
        self._scheduler, self._before, self._done_max = scheduler, before, done_max
        self._actions: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        self._latest: dict[Hashable, int] = {}
        self._stopped = False
        self.done = 0
        self.now_us = scheduler.now_us()

    def new_number(self) -> int:
        """A new number, unique among actions and connections."""
        self._count += 1
        return self._count

    def at(self, time_us: int, action: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._actions, (time_us, self._count, action))

    def after(self, kind: str, queue: Hashable, action: Callable[[], None], what: object = None) -> None:
        """Schedules ``action`` after a delay of ``kind``, behind everything already in ``queue``."""
        time_us = self.now_us + self._scheduler.delay_us(kind, what)
        latest_us = self._latest.get(queue, 0)
        if time_us < latest_us:
            time_us = latest_us
        self._latest[queue] = time_us
        self._count += 1
        heapq.heappush(self._actions, (time_us, self._count, action))

    def after_delay(self, kind: str, action: Callable[[], None]) -> None:
        """Schedules ``action`` after a delay of ``kind``, in no queue."""
        self.at(self.now_us + self._scheduler.delay_us(kind), action)

    def hold_back(self, queue: Hashable, until_us: int) -> None:
        """Delays later actions of ``queue`` to ``until_us`` or after."""
        self._latest[queue] = max(self._latest.get(queue, 0), until_us)

    def run(self) -> None:
        """Performs scheduled actions, and those that arrive from outside, until ``stop``."""
        actions, scheduler, before = self._actions, self._scheduler, self._before
        done_max = sys.maxsize if self._done_max is None else self._done_max
        while not self._stopped:
            for arrived in scheduler.arrived():
                arrived()
            if not actions and scheduler.is_alone:
                raise AssertionError("nothing is left to happen and the job has not ended")
            due_us = actions[0][0] if actions else MAX_TIME
            now_us = scheduler.wait_until(due_us)
            if now_us > self.now_us:
                self.now_us = now_us
            if due_us > self.now_us:
                continue
            action = heapq.heappop(actions)[2]
            self.done += 1
            if self.done > done_max:
                raise AssertionError(f"the job has not ended after {done_max} actions")
            before()
            action()

    def stop(self) -> None:
        """Ends ``run`` after the current action."""
        self._stopped = True
