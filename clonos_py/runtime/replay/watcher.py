"""What looks at the operators of a replay: a debugger, or a trace of rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from clonos_py.channel.frames import Frame
from clonos_py.model.errors import UserCodeError
from clonos_py.model.ids import TaskId
from clonos_py.model.plan import PhysicalPlan
from clonos_py.runtime.replay.interval import RecordedTask


class OperatorWatcher(Protocol):
    """Looks at the operators of each leg of a replay. Calls come in the order of the methods."""

    def tasks(self, plan: PhysicalPlan) -> Collection[str]:
        """The names of the tasks that it needs, such as ``join[0]``; those upstream of them are replayed, too. Empty
        for all. Raises SettingError if the plan does not have what was asked for."""
        ...

    def watched(self, plan: PhysicalPlan) -> PhysicalPlan:
        """The plan to replay: that of the leg with other operator objects, which do the same."""
        ...

    def begin(self, recorded: Mapping[TaskId, RecordedTask]) -> None:
        """The leg begins, with these tasks."""
        ...

    def delivered(self, sender: TaskId, output: int, frame: Frame) -> None:
        """A frame leaves its sender through this output channel."""
        ...

    def failed(self, error: UserCodeError) -> None:
        """The replay ends with this error. The operators are as they were when it was raised; they are closed next."""
        ...
