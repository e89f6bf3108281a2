"""The processes of a world and the connections between them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from clonos_py.link.instructions import LinkEvent
from clonos_py.link.machine import LinkMachine
from clonos_py.model.errors import ClonosError
from clonos_py.process.contract import FromTask
from clonos_py.runtime.executors.link import LinkExecutor
from clonos_py.runtime.executors.spill import SpillExecutor
from clonos_py.runtime.executors.storage import StorageWork
from clonos_py.runtime.executors.task import TaskExecutor
from clonos_py.task.context import OperatorEnvironment
from clonos_py.task.machine import TaskMachine


class Storage(Protocol):
    """A StorageExecutor, or a layer before it."""

    def carry_out(self, work: StorageWork) -> Iterable[LinkEvent]: ...


class LocalProcess:
    """A process of the world: its machines, their executors, the environment of its operators, and its connections."""

    link_executor: LinkExecutor
    task_executor: TaskExecutor
    storage: Storage
    produced_before: Callable[[Callable[[], None]], None]
    """Carries out an action after the link has got everything that the task has produced."""

    def __init__(
        self,
        number: int,
        link: LinkMachine,
        machine: TaskMachine,
        environment: OperatorEnvironment,
        spill: SpillExecutor,
    ) -> None:
        """``environment``: that of the task's operators. The world adds the executors, whose environments lead back to
        it."""
        self.number, self.task = number, link.task_id
        self.link, self.machine, self.environment, self.spill = link, machine, environment, spill
        self.alive = True
        self.raised = False
        """Whether the task has raised an error in a step; its link may not know yet."""
        self.step_token = 0
        self.connections: set[int] = set()
        self.unstored: deque[StorageWork] = deque()
        """Requests that storage has not done yet, in order."""
        self.produced: Sequence[FromTask] = ()
        """The events of the last step of the task that had any."""

    def fail(self, problem: ClonosError) -> None:
        """The task or its storage raised an error."""
        if self.alive:
            self.link_executor.fail(problem)


@dataclass
class WorldConnection:
    """A connection between a subscriber (the receiver of frames) and the process that serves it (the sender)."""

    receiver: LocalProcess
    sender: LocalProcess
    closed: bool = False
    lossy: bool = False
    """Whether messages that were in transit when it closed are lost, too."""

    def other(self, process: LocalProcess) -> LocalProcess:
        return self.sender if process is self.receiver else self.receiver
