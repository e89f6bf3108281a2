"""Executes a preparation: starts processes ahead of their job's deployment, and sends them what they load."""

from __future__ import annotations

from typing import Protocol

from clonos_py.job.completed import CompletedCheckpoint
from clonos_py.job.events import Instructions, JobEvent, Send, StartProcess
from clonos_py.job.preparation import Preparation
from clonos_py.model.messages import ToCoordinator, ToProcess


class PreparationEnvironment(Protocol):
    """The part of a coordinator's environment that a preparation needs."""

    def start(self, request: StartProcess) -> None:
        """Starts a process, which reports itself with ``Started``."""
        ...

    def send(self, number: int, message: ToProcess) -> None:
        """Sends a message, in order for each process. Messages to a process that is gone are dropped."""
        ...


class PreparationExecutor:
    """Owns a Preparation. Only one thread at a time may call it."""

    def __init__(self, preparation: Preparation, environment: PreparationEnvironment) -> None:
        self.preparation, self._environment = preparation, environment

    def start(self) -> None:
        self._carry_out(self.preparation.start())

    def load(self, ahead: CompletedCheckpoint) -> None:
        self._carry_out(self.preparation.load(ahead))

    def handle(self, event: ToCoordinator | JobEvent) -> None:
        self._carry_out(self.preparation.handle(event))

    def _carry_out(self, instructions: Instructions) -> None:
        for instruction in instructions:
            match instruction:
                case StartProcess():
                    self._environment.start(instruction)
                case Send(number, message):
                    self._environment.send(number, message)
                case _:
                    raise AssertionError(f"{instruction} is not part of a preparation")
