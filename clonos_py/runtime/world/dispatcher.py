"""Passes arrived events to the executors of processes and of the coordinator.

Here a process handles an event at once. The simulator puts a layer before this, for processes that hang.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol

from clonos_py.model.errors import ClonosError
from clonos_py.model.times import MAX_TIME
from clonos_py.process.contract import TaskState, ToTask
from clonos_py.runtime.executors.link import LinkInput
from clonos_py.runtime.world.actions import Actions
from clonos_py.runtime.world.processes import LocalProcess


class Dispatcher(Protocol):
    """Calls of these methods cause all work of processes and of the coordinator."""

    def link(self, number: int, event: LinkInput) -> None:
        """An event for the link of the process with this number. Dropped if there is no such process."""
        ...

    def offer(self, process: LocalProcess, item: ToTask) -> None:
        """An item for the task of a process."""
        ...

    def step(self, process: LocalProcess, token: int) -> None:
        """The task of a process takes the step planned as number ``token``, unless another was planned since."""
        ...

    def host(self, number: int, action: Callable[[], None]) -> None:
        """An action of the host process of a process, outside of its machines."""
        ...

    def coordinator(self, action: Callable[[], None]) -> None:
        """An action of the coordinator."""
        ...


class DirectDispatcher:
    """Calls the executors directly."""

    def __init__(self, processes: Mapping[int, LocalProcess], actions: Actions) -> None:
        self._processes, self._actions = processes, actions
        self.outer: Dispatcher = self
        """The outermost layer before this dispatcher. Later steps go through it."""

    def link(self, number: int, event: LinkInput) -> None:
        process = self._processes.get(number)
        if process is not None:
            process.link_executor.handle(event)

    def offer(self, process: LocalProcess, item: ToTask) -> None:
        if not process.alive or process.raised or process.link.state is TaskState.FAILED:
            return
        try:
            process.task_executor.offer(item)
        except ClonosError as problem:
            process.fail(problem)
        else:
            self._actions.after_delay("step", self._planned(process))

    def step(self, process: LocalProcess, token: int) -> None:
        if not process.alive or token != process.step_token or process.raised or process.link.state is TaskState.FAILED:
            return
        try:
            wake_us = process.task_executor.step()
        except ClonosError as problem:
            process.raised = True
            process.produced_before(partial(process.fail, problem))
            return
        if wake_us is None:
            self._actions.after_delay("step", self._planned(process))
        elif wake_us < MAX_TIME:
            self._actions.at(max(wake_us, self._actions.now_us + 1), self._planned(process))

    def _planned(self, process: LocalProcess) -> Callable[[], None]:
        process.step_token += 1
        return partial(self.outer.step, process, process.step_token)

    def host(self, number: int, action: Callable[[], None]) -> None:
        action()

    def coordinator(self, action: Callable[[], None]) -> None:
        action()
