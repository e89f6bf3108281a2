"""Executes the task: passes items to its machine, steps it, and turns the results of each step into calls of its
environment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from clonos_py.model.calls import ServiceCall
from clonos_py.process.contract import FromTask, RestoreState, ToTask
from clonos_py.runtime.executors.low_priority import LowPriority
from clonos_py.task.machine import TaskMachine


@dataclass(frozen=True)
class TaskEnvironment:
    """The environment of a task. That of its operators is separate (``task/context.py``)."""

    produce: Callable[[Sequence[FromTask]], None]
    """Passes the events of one step to the link of this process, in order. May wait while the link is behind."""
    call: Callable[[ServiceCall], None]
    """Starts a call of an asynchronous function. The driver has to offer its answer to the task."""
    low_priority: LowPriority
    """Loads state ahead of its use."""
    now_us: Callable[[], int]
    """A clock that is never set."""


class TaskExecutor:
    """Owns a TaskMachine. Only one thread at a time may call it; ``low_priority`` may use another one meanwhile. Every
    error that it raises ends the task: the driver passes the error to the link's executor."""

    def __init__(self, machine: TaskMachine, environment: TaskEnvironment) -> None:
        self.machine = machine
        self._low_priority, self._now_us = environment.low_priority, environment.now_us
        self._produce, self._call = environment.produce, environment.call

    def offer(self, item: ToTask) -> None:
        """Adds an item for the task. A later step takes it."""
        if isinstance(item, RestoreState) and item.ahead:
            self._low_priority.do(partial(self.machine.offer, item))
        else:
            self.machine.offer(item)

    def step(self) -> int | None:
        """Performs one event. Returns when to step again: None at once, else at a time (microseconds of ``now_us``), or
        earlier if an item is offered."""
        outcome = self.machine.step(self._now_us())
        if outcome.events:
            self._produce(outcome.events)
        for call in outcome.calls:
            self._call(call)
        return outcome.wake_us

    def abandon(self) -> None:
        """Ends the task as if it were killed: operators are not closed."""
        self.machine.abandon()

    def close(self) -> None:
        """Ends the task in order: operators are closed."""
        self.machine.close()
