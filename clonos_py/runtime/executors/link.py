"""Executes the link: events go to its machine, and each instruction becomes a call of a port."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from clonos_py.link.instructions import (
    ClaimOutput,
    Commit,
    Connect,
    Disconnect,
    FreeFrames,
    Instruction,
    LinkEvent,
    Load,
    Persist,
    ReadFrames,
    SendAck,
    SendFrame,
    SendToCoordinator,
    SendToTask,
    SettleOutput,
    Shutdown,
    Spilling,
    WriteFrames,
    WriteOutput,
)
from clonos_py.link.machine import LinkMachine
from clonos_py.model.messages import Ping, StatusRequest, Stop, ToCoordinator, ToProcess
from clonos_py.process.contract import FromTask, Observed, TaskState, ToTask
from clonos_py.runtime.executors.storage import StorageWork

LinkInput = ToProcess | LinkEvent | FromTask


class DataConnections(Protocol):
    """The data connections of one process. What becomes of them comes back as link events."""

    def connect(self, wish: Connect) -> None: ...

    def disconnect(self, connection: int) -> None:
        """Nothing unread of it may be delivered any more."""
        ...

    def send_frame(self, wish: SendFrame) -> None: ...

    def send_ack(self, wish: SendAck) -> None: ...


@dataclass(frozen=True)
class LinkPorts:
    """What a link acts on. No port waits for the work that it is given."""

    connections: DataConnections
    hand: Callable[[ToTask], None]
    """To the task of this process, in order."""
    send_to_coordinator: Callable[[ToCoordinator], None]
    store: Callable[[StorageWork], None]
    """Has a StorageExecutor do it, in order; the answer comes back as a link event."""
    spill: Callable[[Spilling], None]
    """Has a SpillExecutor do it, in order; answers come back as link events."""
    observe: Callable[[Observed], None]
    """For people: what the task has done, as far as it counts."""
    shut_down: Callable[[str], None]
    """The process is to end, for this reason."""


class LinkExecutor:
    """Owns a LinkMachine. To be called by one thread at a time."""

    def __init__(self, machine: LinkMachine, ports: LinkPorts, failures: type[Exception] = Exception) -> None:
        """``failures``: errors of the machine or of a port that end the process and are reported to the coordinator.
        Others are raised."""
        self.machine = machine
        self._ports, self._failures = ports, failures
        self._connections, self._hand, self._observe = ports.connections, ports.hand, ports.observe

    def handle(self, event: LinkInput) -> None:
        """Passes one event to the machine and carries its instructions out. A link that has failed only answers pings
        and status requests, and stops."""
        machine = self.machine
        if isinstance(event, Observed):
            self._observe(machine.observed(event))
        elif machine.state is not TaskState.FAILED or isinstance(event, Stop | Ping | StatusRequest):
            try:
                self._carry_out(machine.handle(event))
            except self._failures as problem:
                self.fail(problem)

    def fail(self, problem: BaseException) -> None:
        """The link, its task or one of its ports raised ``problem``: the coordinator decides what follows."""
        self._carry_out(self.machine.fail(problem))

    def _carry_out(self, instructions: Sequence[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case SendFrame():
                    self._connections.send_frame(instruction)
                case SendToTask():
                    self._hand(instruction.item)
                case SendAck():
                    self._connections.send_ack(instruction)
                case SendToCoordinator(message):
                    self._ports.send_to_coordinator(message)
                case Connect():
                    self._connections.connect(instruction)
                case Disconnect(connection):
                    self._connections.disconnect(connection)
                case Load() | Persist() | Commit() | ClaimOutput() | WriteOutput() | SettleOutput():
                    self._ports.store(instruction)
                case WriteFrames() | ReadFrames() | FreeFrames():
                    self._ports.spill(instruction)
                case Shutdown(reason):
                    self._ports.shut_down(reason)
