"""The processes that a coordinator has requested: the task of each, which ones are active, which ones are silent."""

from __future__ import annotations

from collections.abc import Mapping

from clonos_py.model.ids import TaskId
from clonos_py.runtime.ray.busy import Busy


class KnownProcesses:
    """The processes of one coordinator. ``listed`` may be called by any thread."""

    def __init__(self, roster: Mapping[int, TaskId], busy: Busy) -> None:
        """``roster``: the processes that a lost coordinator had requested."""
        self.tasks: dict[int, TaskId] = dict(roster)
        """The task of each process, by number."""
        self.owners: dict[TaskId, int] = {}
        """The process that was promoted last, by task."""
        self.busy = busy

    def listed(self) -> dict[int, tuple[TaskId, bool]]:
        """By number: the task of a process, and whether the process is active."""
        owners = set(self.owners.values())
        return {number: (task, number in owners) for number, task in list(self.tasks.items())}

    def promoted(self, number: int) -> TaskId:
        """The process becomes active. Returns its task."""
        task = self.tasks[number]
        self.owners[task] = number
        return task

    def drop(self, number: int) -> None:
        """Drops a process that has ended or is about to. Messages that it still sends do not count any more."""
        self.tasks.pop(number, None)
        self.busy.drop(number)
