"""What a world is made of: processes, and the connections between them."""

from __future__ import annotations

from dataclasses import dataclass

from clonos_py.model.ids import TaskId
from clonos_py.runtime.executors.spill import SpillExecutor
from clonos_py.runtime.executors.storage import StorageExecutor
from clonos_py.task.context import Ports
from clonos_py.task.link import LinkMachine
from clonos_py.task.machine import TaskMachine


class LocalProcess:
    """A process of the world: a link and a task, its outside, its disk, and the connections it takes part in."""

    def __init__(
        self,
        number: int,
        task: TaskId,
        link: LinkMachine,
        machine: TaskMachine,
        ports: Ports,
        storage: StorageExecutor,
        spill: SpillExecutor,
    ) -> None:
        self.number, self.task, self.link, self.machine = number, task, link, machine
        self.ports, self.storage, self.spill = ports, storage, spill
        self.alive = True
        self.step_token = 0
        self.connections: set[int] = set()


@dataclass
class Connection:
    """From a subscriber (the receiver of frames) to the process that serves it."""

    receiver: LocalProcess
    sender: LocalProcess
    closed: bool = False
    lossy: bool = False
    """Whether what was on its way when it closed is lost, too."""

    def other(self, process: LocalProcess) -> LocalProcess:
        return self.sender if process is self.receiver else self.receiver
