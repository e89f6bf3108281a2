"""Executes the link: events go to its machine, and each instruction becomes a call of its environment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from clonos_py.link.instructions import (
    AcquireOutput,
    AdoptState,
    Commit,
    Connect,
    Disconnect,
    FreeFrames,
    Instruction,
    KeepTail,
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
    """The data connections of one process. Their results come back as link events."""

    def connect(self, request: Connect) -> None: ...

    def disconnect(self, connection: int) -> None:
        """Closes a connection. No unread message of it may be delivered any more."""
        ...

    def send_frame(self, request: SendFrame) -> None: ...

    def send_ack(self, request: SendAck) -> None: ...


@dataclass(frozen=True)
class LinkEnvironment:
    """The environment of a link. No call waits until its work is done."""

    connections: DataConnections
    hand: Callable[[ToTask], None]
    """Passes an item to the task of this process, in order."""
    send_to_coordinator: Callable[[ToCoordinator], None]
    store: Callable[[StorageWork], None]
    """Passes work to a StorageExecutor, in order. The answer comes back as a link event."""
    spill: Callable[[Spilling], None]
    """Passes work to a SpillExecutor, in order. Answers come back as link events."""
    observe: Callable[[Observed], None]
    """Takes the counts of the task's work, for metrics."""
    shut_down: Callable[[str], None]
    """Ends the process. The argument is the reason."""


class LinkExecutor:
    """Owns a LinkMachine. Only one thread at a time may call it."""

    def __init__(
        self, machine: LinkMachine, environment: LinkEnvironment, failures: type[Exception] = Exception
    ) -> None:
        """``failures``: errors of the machine or of the environment that end the process and are reported to the
        coordinator. Others are raised."""
        self.machine = machine
        self._environment, self._failures = environment, failures
        self._connections, self._hand, self._observe = environment.connections, environment.hand, environment.observe

    def handle(self, event: LinkInput) -> None:
        """Passes one event to the machine and carries out its instructions. A link that has failed handles only pings,
        status requests and ``Stop``."""
        machine = self.machine
        if isinstance(event, Observed):
            self._observe(machine.observed(event))
        elif machine.state is not TaskState.FAILED or isinstance(event, Stop | Ping | StatusRequest):
            try:
                self._carry_out(machine.handle(event))
            except self._failures as problem:
                self.fail(problem)

    def fail(self, problem: BaseException) -> None:
        """Reports a ``problem`` that link, task or environment raised: the coordinator decides what follows."""
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
                    self._environment.send_to_coordinator(message)
                case Connect():
                    self._connections.connect(instruction)
                case Disconnect(connection):
                    self._connections.disconnect(connection)
                case (
                    Load()
                    | Persist()
                    | KeepTail()
                    | AdoptState()
                    | Commit()
                    | AcquireOutput()
                    | WriteOutput()
                    | SettleOutput()
                ):
                    self._environment.store(instruction)
                case WriteFrames() | ReadFrames() | FreeFrames():
                    self._environment.spill(instruction)
                case Shutdown(reason):
                    self._environment.shut_down(reason)
