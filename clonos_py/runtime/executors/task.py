"""Executes the task: passes items to its machine, steps it, and turns the results of each step into calls of its
environment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import msgspec

from clonos_py.model.calls import ServiceCall
from clonos_py.process.contract import AbortRequest, FromTask, RestoreState, SnapshotTaken, SnapshotTimes, ToTask
from clonos_py.runtime.executors.low_priority import LowPriority
from clonos_py.task.machine import TaskMachine


@dataclass(frozen=True)
class TaskEnvironment:
    """The environment of a task. That of its operators is separate (``task/context.py``)."""

    produce: Callable[[Sequence[FromTask]], None]
    """Passes the events of one step to the link of this process, in order. May wait while the link is behind."""
    call: Callable[[ServiceCall], None]
    """Starts a call of an asynchronous function. The driver has to offer its answer to the task."""
    low_priority: LowPriority | None
    """Loads state ahead of its use. None: a standby holds the state of the last checkpoint, and loads it when the task
    gets anything else, as when it is promoted."""
    now_us: Callable[[], int]
    """A clock that is never set."""
    elapsing_us: Callable[[], int]
    """A clock for what steps take: it goes on during a step, which ``now_us`` of a world does not."""
    shares_thread: bool = False
    """Whether other tasks work in the same thread while this one has nothing to do."""


class _SnapshotClock:
    """Measures what snapshots cost a task: the step in which one is taken, and the time before it in which the task
    could take nothing, since channels were blocked for it."""

    def __init__(self) -> None:
        self._busy_us = self._blocked_us = 0
        self._blocked_since_us: int | None = None

    def stepping(self, now_us: int) -> None:
        if self._blocked_since_us is not None:
            self._blocked_us += now_us - self._blocked_since_us
            self._blocked_since_us = None

    def stepped(self, began_us: int, now_us: int, blocked: bool) -> None:
        """``blocked``: nothing is left to do than what blocked channels hold."""
        self._busy_us += now_us - began_us
        self._blocked_since_us = now_us if blocked else None

    def aborted(self) -> None:
        """There is no snapshot: a failure or a timeout has cost the time, not the checkpoint."""
        self._blocked_us, self._blocked_since_us = 0, None

    def snapshot(self, began_us: int, now_us: int) -> SnapshotTimes:
        """A snapshot was taken in the step that began then."""
        times = SnapshotTimes((now_us - began_us) / 1_000, self._blocked_us / 1_000, self._busy_us / 1_000)
        self._busy_us, self._blocked_us = began_us - now_us, 0  # this step is not part of the next time
        return times


class TaskExecutor:
    """Owns a TaskMachine. Only one thread at a time may call it; ``low_priority`` may use another one meanwhile. Every
    error that it raises ends the task: the driver passes the error to the link's executor."""

    def __init__(self, machine: TaskMachine, environment: TaskEnvironment) -> None:
        self.machine = machine
        self._low_priority, self._now_us = environment.low_priority, environment.now_us
        self._produce, self._call = environment.produce, environment.call
        self._elapsing_us, self._shares_thread = environment.elapsing_us, environment.shares_thread
        self._snapshots = _SnapshotClock()
        self._held: RestoreState | None = None
        """State that a standby was given and has not loaded."""

    def offer(self, item: ToTask) -> None:
        """Adds an item for the task. A later step takes it."""
        if isinstance(item, AbortRequest):
            self._snapshots.aborted()
        if isinstance(item, RestoreState):
            self._restore(item)
            return
        if self._held is not None:
            held, self._held = self._held, None
            self.machine.offer(held)
        self.machine.offer(item)

    def _restore(self, item: RestoreState) -> None:
        """Each replaces all state, so what is held is not needed any more."""
        self._held = None
        if not item.ahead:
            self.machine.offer(item)
        elif self._low_priority is not None:
            self._low_priority.do(partial(self.machine.offer, item))
        elif item.feed_point:
            self.machine.offer(item)  # the next one comes when this one is loaded
        else:
            self._held = item

    def step(self) -> int | None:
        """Performs one event. Returns when to step again: None at once, else at a time (microseconds of ``now_us``), or
        earlier if an item is offered."""
        began_us = self._elapsing_us()
        self._snapshots.stepping(began_us)
        try:
            outcome = self.machine.step(self._now_us())
        except Exception:
            if (last := self.machine.last_log()) is not None:
                self._produce([last])
            raise
        now_us = self._elapsing_us()
        if self._shares_thread:
            self.machine.worked(now_us - began_us)
        if outcome.events:
            self._produce([self._timed(event, began_us, now_us) for event in outcome.events])
        idle = outcome.wake_us is not None and not self._shares_thread
        self._snapshots.stepped(began_us, now_us, idle and self.machine.blocked)
        for call in outcome.calls:
            self._call(call)
        return outcome.wake_us

    def _timed(self, event: FromTask, began_us: int, now_us: int) -> FromTask:
        if not isinstance(event, SnapshotTaken):
            return event
        return msgspec.structs.replace(event, times=self._snapshots.snapshot(began_us, now_us))

    def abandon(self) -> None:
        """Ends the task as if it were killed: operators are not closed."""
        self.machine.abandon()

    def close(self) -> None:
        """Ends the task in order: operators are closed."""
        self.machine.close()
