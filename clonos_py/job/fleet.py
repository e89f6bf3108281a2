"""The coordinator's book of processes: which is which task's active one, which stand by, who answers."""

from __future__ import annotations

from collections.abc import Collection
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
    shares: bool = False
    """It was started beside another process of its task, and may share a home."""
    home: int = 0
    """The same for processes that are one for the operating system; 0: it is alone."""


class Fleet:
    """All living processes of a job. Process numbers are never used twice."""

    def __init__(self) -> None:
        self._next = 0
        self.processes: dict[int, Process] = {}

    def add(self, task: TaskId, now_us: int) -> Process:
        self._next += 1
        shares = any(process.task == task for process in self.processes.values())
        process = Process(self._next, task, heard_us=now_us, shares=shares)
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
        return [p for p in self.processes.values() if p.task == task and p.role is Role.STANDBY]

    def best(self, task: TaskId, at_leisure: bool, crowded: Collection[int]) -> Process | None:
        """The standby to be the task: one that can be reached, with the newest state, its home not ``crowded``. With
        nobody waiting (``at_leisure``) one that shares no home, though it may have to come up first."""

        def cost(process: Process) -> tuple[bool, bool, int, bool, int]:
            in_crowd = process.home != 0 and process.home in crowded
            shares = at_leisure and process.home != 0 and process.shares
            return shares, process.address is None, -process.prepared, in_crowd, process.number

        return min(self.standbys(task), key=cost, default=None)

    def guests(self) -> list[Process]:
        """Standbys that share the home of a task."""
        homes = self._homes_of_tasks()
        return [p for p in self.with_role(Role.STANDBY) if p.home in homes]

    def resident(self, task: TaskId) -> list[Process]:
        """Standbys of a task that may stay."""
        homes = self._homes_of_tasks()
        return [p for p in self.standbys(task) if p.home not in homes]

    def _homes_of_tasks(self) -> set[int]:
        return {p.home for p in self.with_role(Role.PROMOTED, Role.ACTIVE) if p.home}

    def with_role(self, *roles: Role) -> list[Process]:
        return [p for p in self.processes.values() if p.role in roles]
