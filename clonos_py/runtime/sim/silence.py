"""Checks that processes are replaced for a reason: one that hung, one that cannot be reached, or one that has died.

The simulator knows what befell which process. One that was never hung is never taken for dead because it was silent,
unless control messages were slow. A live one is never replaced as unreachable, unless two processes were cut off for
good, or a refused connection takes as long as is waited for one. That the coordinator stood still is no reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from clonos_py.job.events import JobInstruction, KillProcess, ReportEvent
from clonos_py.model.coordinator_events import StandbyLost, TaskLost
from clonos_py.runtime.sim.violation import check
from clonos_py.runtime.world.processes import LocalProcess

_SILENT = "silent for the heartbeat timeout"
_UNREACHABLE = "no data connection"


class Silence:
    """What befell the processes of one run."""

    def __init__(self) -> None:
        self._hung: set[int] = set()
        self._cut_off = False

    def hangs(self, number: int) -> None:
        """A process stands still, for however long."""
        self._hung.add(number)

    def cut_off(self) -> None:
        """Two processes cannot reach each other any more."""
        self._cut_off = True

    def decided(
        self,
        instructions: Sequence[JobInstruction],
        processes: Mapping[int, LocalProcess],
        control_is_slow: bool,
        connecting_is_slow: bool,
    ) -> None:
        """The coordinator has decided; nothing of it is done yet."""
        killed = -1
        for instruction in instructions:
            match instruction:
                case KillProcess(number):
                    killed = number
                case ReportEvent(TaskLost(task, reason) | StandbyLost(task, reason)) if killed in processes:
                    if reason.startswith(_SILENT):
                        fair = killed in self._hung or control_is_slow
                        check(fair, f"{task} was replaced, {reason}, though process {killed} was well")
                    elif reason.startswith(_UNREACHABLE):
                        fair = self._cut_off or connecting_is_slow
                        check(fair, f"{task} was replaced, {reason}, though none was cut off")
                    killed = -1
                case _:
                    pass
