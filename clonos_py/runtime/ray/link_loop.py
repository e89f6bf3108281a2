"""The link thread: feeds the link's executor with events of sockets, coordinator, task and storage (D8).

All events but those of sockets come through one inbox, in order per sender. The task thread waits when the link is
behind: it must not produce frames faster than they are encoded.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from clonos_py.link.instructions import LinkEvent
from clonos_py.model.messages import ToProcess
from clonos_py.process.contract import FromTask
from clonos_py.runtime.executors.link import LinkExecutor
from clonos_py.runtime.ray.channels import Channels

_STEPS_AHEAD = 32
"""Steps that the task may be ahead of the link."""
_WAIT_S_MAX = 1.0
_EVENTS_PER_TURN = 64
"""Events that are taken from the inbox between two polls of the sockets."""


@dataclass(frozen=True)
class Raised:
    """The task, storage or spill thread raised an exception."""

    problem: BaseException


@dataclass(frozen=True)
class TaskStepped:
    """The events of one step of the task."""

    events: Sequence[FromTask]


Item = ToProcess | LinkEvent | Raised | TaskStepped


class LinkLoop:
    """Runs a LinkExecutor over the channels that are its connections. ``run`` is the body of the thread; the other
    methods may be called by any thread."""

    def __init__(self, executor: LinkExecutor, channels: Channels) -> None:
        self._executor, self._channels = executor, channels
        self._inbox: deque[Item] = deque()
        self._room = threading.Semaphore(_STEPS_AHEAD)
        self._running = True

    def put(self, item: ToProcess | LinkEvent | Raised) -> None:
        self._inbox.append(item)
        self._channels.wake()

    def put_step(self, events: Sequence[FromTask]) -> None:
        """Adds the events of one step of the task. Waits while the link is too far behind."""
        while not self._room.acquire(timeout=_WAIT_S_MAX):
            if not self._running:
                return
        self._inbox.append(TaskStepped(events))
        self._channels.wake()

    def stop(self) -> None:
        """Ends the thread. Events that are left in the inbox are dropped."""
        self._running = False
        self._room.release()
        self._channels.wake()

    def run(self) -> None:
        """Handles events until ``stop``."""
        handle = self._executor.handle
        while self._running:
            for event in self._channels.poll(0 if self._inbox else None):
                handle(event)
            for _ in range(min(len(self._inbox), _EVENTS_PER_TURN)):
                self._take(self._inbox.popleft())
        self._channels.close()

    def _take(self, item: Item) -> None:
        match item:
            case Raised(problem):
                self._executor.fail(problem)
            case TaskStepped(events):
                for event in events:
                    self._executor.handle(event)
                self._room.release()
            case _:
                self._executor.handle(item)
