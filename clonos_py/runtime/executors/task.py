"""Executes the task: its machine takes items and steps, and what a step gives becomes calls of ports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from clonos_py.model.calls import ServiceCall
from clonos_py.process.contract import FromTask, TakeState, ToTask
from clonos_py.runtime.executors.low_priority import LowPriority
from clonos_py.task.machine import TaskMachine


@dataclass(frozen=True)
class TaskPorts:
    """What a task acts on besides what its operators ask of the world outside (``task/context.py``)."""

    produce: Callable[[Sequence[FromTask]], None]
    """To the link of this process: what one step gave, in order. May wait while the link is behind."""
    call: Callable[[ServiceCall], None]
    """Starts a call of an asynchronous function. Its answer is to be offered to the task."""
    low_priority: LowPriority
    """Takes in state ahead of its use."""
    now_us: Callable[[], int]
    """A clock that is never set."""


class TaskExecutor:
    """Owns a TaskMachine. To be called by one thread at a time, save that ``low_priority`` may use another meanwhile.
    Whatever is raised ends the task: the driver passes it to the link's executor."""

    def __init__(self, machine: TaskMachine, ports: TaskPorts) -> None:
        self.machine = machine
        self._low_priority, self._now_us = ports.low_priority, ports.now_us
        self._produce, self._call = ports.produce, ports.call

    def offer(self, item: ToTask) -> None:
        """Something for the task, to be taken in a step."""
        if isinstance(item, TakeState) and item.ahead:
            self._low_priority.do(partial(self.machine.offer, item))
        else:
            self.machine.offer(item)

    def step(self) -> int | None:
        """One event. When to step again: None at once, else a time (microseconds of ``now_us``), or earlier if
        something is offered."""
        outcome = self.machine.step(self._now_us())
        if outcome.events:
            self._produce(outcome.events)
        for call in outcome.calls:
            self._call(call)
        return outcome.wake_us

    def abandon(self) -> None:
        """Killed: operators are not closed."""
        self.machine.abandon()

    def close(self) -> None:
        """In order: operators are closed."""
        self.machine.close()
