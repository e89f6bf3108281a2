"""The coordinator's book of processes: which is which task's active one, which stand by, who answers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from clonos_py.model.ids import Attempt, TaskId


class Role(Enum):
    STANDBY = "standby"
    PROMOTED = "promoted"
    """Told to be the task, its log not sent yet."""
    ACTIVE = "active"


@dataclass
class Process:
    """A process that lives, as far as is known."""

    number: int
    task: TaskId
    role: Role = Role.STANDBY
    address: str | None = None
    prepared: int = -1
    """The checkpoint whose state it holds; -1: none yet."""
    attempt: Attempt | None = None
    heard_us: int = 0


class Fleet:
    """All living processes of a job. Process numbers are never used twice."""

    def __init__(self) -> None:
        self._next = 0
        self.processes: dict[int, Process] = {}

    def add(self, task: TaskId, now_us: int) -> Process:
        self._next += 1
        process = Process(self._next, task, heard_us=now_us)
        self.processes[process.number] = process
        return process

    def adopt(self, number: int, task: TaskId, now_us: int) -> Process:
        """A process that another coordinator has started."""
        self._next = max(self._next, number)
        process = self.processes[number] = Process(number, task, heard_us=now_us)
        return process

    def remove(self, number: int) -> Process | None:
        return self.processes.pop(number, None)

    def get(self, number: int) -> Process | None:
        return self.processes.get(number)

    def owner(self, task: TaskId) -> Process | None:
        """The process that is the task now, or has been told to be."""
        return next((p for p in self.processes.values() if p.task == task and p.role is not Role.STANDBY), None)

    def standbys(self, task: TaskId) -> list[Process]:
        """Those of a task, best first: reachable ones, then those with the newest state."""
        found = [p for p in self.processes.values() if p.task == task and p.role is Role.STANDBY]
        return sorted(found, key=lambda p: (p.address is None, -p.prepared, p.number))

    def with_role(self, *roles: Role) -> list[Process]:
        return [p for p in self.processes.values() if p.role in roles]
