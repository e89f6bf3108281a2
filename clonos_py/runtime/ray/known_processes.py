"""The processes that a coordinator has asked for: of which task each is, which are the tasks now, which are silent."""

from __future__ import annotations

from collections.abc import Mapping

from clonos_py.model.ids import TaskId
from clonos_py.runtime.ray.busy import Busy


class KnownProcesses:
    """``listed`` may be called by any thread."""

    def __init__(self, roster: Mapping[int, TaskId], busy: Busy) -> None:
        """``roster``: those that a lost coordinator had asked for."""
        self.tasks: dict[int, TaskId] = dict(roster)
        """By number: its task."""
        self.owners: dict[TaskId, int] = {}
        """By task: the process that was promoted last."""
        self.busy = busy

    def listed(self) -> dict[int, tuple[TaskId, bool]]:
        """By number: its task, and whether it is that task now."""
        owners = set(self.owners.values())
        return {number: (task, number in owners) for number, task in list(self.tasks.items())}

    def promoted(self, number: int) -> TaskId:
        """The process becomes its task."""
        task = self.tasks[number]
        self.owners[task] = number
        return task

    def forget(self, number: int) -> None:
        """A process is gone, or will be soon: what it still says counts no more."""
        self.tasks.pop(number, None)
        self.busy.forget(number)
