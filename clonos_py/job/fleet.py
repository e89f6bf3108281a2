"""The processes of a job as the coordinator sees them: tasks, roles, addresses."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from enum import Enum

from clonos_py.model.ids import Attempt, TaskId


class Role(Enum):
    STANDBY = "standby"
    PROMOTED = "promoted"
    """Promoted to its task; its log has not been sent yet."""
    ACTIVE = "active"


@dataclass
class TaskProcess:
    """A process that has not failed as far as the coordinator has found out."""

    number: int
    task: TaskId
    role: Role = Role.STANDBY
    address: str | None = None
    prepared: int = -1
    """The newest checkpoint whose state it has loaded; -1: none yet."""
    attempt: Attempt | None = None
    last_seen_us: int = 0
    shares: bool = False
    """It was started beside another process of its task, and may share a host process."""
    reuses: bool = False
    """It starts in the host process in which its task ran before a rollback."""
    lacks_room: str = ""
    """Why no node can run it, until one can."""
    host_process: int = 0
    """Equal for processes that share a host process; 0: it shares none."""


class Fleet:
    """All processes of a job that have not failed. Process numbers are never reused."""

    def __init__(self) -> None:
        self._next = 0
        self.processes: dict[int, TaskProcess] = {}
        self._of_task: dict[TaskId, dict[int, TaskProcess]] = {}

    def add(self, task: TaskId, now_us: int, reuses: bool = False) -> TaskProcess:
        self._next += 1
        shares = not reuses and bool(self._of_task.get(task))
        process = TaskProcess(self._next, task, last_seen_us=now_us, shares=shares, reuses=reuses)
        self._put(process)
        return process

    def take(self, process: TaskProcess, now_us: int) -> None:
        """Adds a standby that was started ahead (``preparation.py``)."""
        self._next = max(self._next, process.number)
        self._put(replace(process, last_seen_us=now_us))

    def adopt(self, number: int, task: TaskId, now_us: int) -> TaskProcess:
        """Adds a process that another coordinator has started."""
        self._next = max(self._next, number)
        process = TaskProcess(number, task, last_seen_us=now_us)
        self._put(process)
        return process

    def _put(self, process: TaskProcess) -> None:
        self.processes[process.number] = process
        self._of_task.setdefault(process.task, {})[process.number] = process

    def remove(self, number: int) -> TaskProcess | None:
        process = self.processes.pop(number, None)
        if process is not None:
            del self._of_task[process.task][number]
        return process

    def get(self, number: int) -> TaskProcess | None:
        return self.processes.get(number)

    def owner(self, task: TaskId) -> TaskProcess | None:
        """The active or promoted process of a task."""
        return next((p for p in self._of(task) if p.role is not Role.STANDBY), None)

    def owner_of(self, task: TaskId) -> TaskProcess:
        """The active or promoted process of a task that has one."""
        found = self.owner(task)
        assert found is not None
        return found

    def standbys(self, task: TaskId) -> list[TaskProcess]:
        return [p for p in self._of(task) if p.role is Role.STANDBY]

    def _of(self, task: TaskId) -> Iterable[TaskProcess]:
        return self._of_task.get(task, {}).values()

    def best(self, task: TaskId, first_deployment: bool, occupied: Collection[int]) -> TaskProcess | None:
        """The standby to promote. First choice is one that starts where the task ran, then one that has started, then
        the one with the newest state, then one whose host process is not ``occupied``. If no failed task waits
        (``first_deployment``), a standby that shares no host process goes before one that has started. One that may
        share, and has not started, is no better than one that shares: it may wait until the job is deployed."""

        def cost(process: TaskProcess) -> tuple[bool, bool, bool, int, bool, int]:
            on_occupied = process.host_process != 0 and process.host_process in occupied
            unreached = process.address is None
            shares = first_deployment and process.shares and (process.host_process != 0 or unreached)
            return not process.reuses, shares, unreached, -process.prepared, on_occupied, process.number

        return min(self.standbys(task), key=cost, default=None)

    def co_located_standbys(self) -> list[TaskProcess]:
        """Standbys that share the host process of an active or promoted task."""
        host_processes = self._task_host_processes()
        return [p for p in self.with_role(Role.STANDBY) if p.host_process in host_processes]

    def separate_standbys(self, task: TaskId) -> list[TaskProcess]:
        """Standbys of a task that do not have to leave: their host process runs no task."""
        host_processes = self._task_host_processes()
        return [p for p in self.standbys(task) if p.host_process not in host_processes]

    def tasks_that_share(self) -> list[TaskProcess]:
        """The active processes that share a host process with another task, without the last one there."""
        of_host: dict[int, list[TaskProcess]] = {}
        for process in self.with_role(Role.ACTIVE):
            if process.host_process:
                of_host.setdefault(process.host_process, []).append(process)
        return [process for processes in of_host.values() for process in processes[:-1]]

    def _task_host_processes(self) -> set[int]:
        return {p.host_process for p in self.with_role(Role.PROMOTED, Role.ACTIVE) if p.host_process}

    def with_role(self, *roles: Role) -> list[TaskProcess]:
        return [p for p in self.processes.values() if p.role in roles]
