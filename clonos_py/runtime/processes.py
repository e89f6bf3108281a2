"""What a world is made of: processes, and the connections between them."""

from __future__ import annotations

from dataclasses import dataclass

from clonos_py.model.ids import TaskId
from clonos_py.runtime.disk import Snapshots
from clonos_py.runtime.spill import FrameShelf
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
        shelf: FrameShelf,
        snapshots: Snapshots,
    ) -> None:
        self.number, self.task, self.link, self.machine = number, task, link, machine
        self.ports, self.shelf, self.snapshots = ports, shelf, snapshots
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
