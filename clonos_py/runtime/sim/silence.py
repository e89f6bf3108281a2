"""Checks that processes are replaced for a reason: they have hung, are unreachable, or have failed.

The simulator has a record of all faults. A process that never hung must not be replaced as silent, unless control
messages were slow. A running process must not be replaced as unreachable, unless two processes were cut off for good,
or a refused connection may take as long as the connection timeout. A standstill of the coordinator is no reason.
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
    """The record of hung and cut-off processes of one run, and the check."""

    def __init__(self) -> None:
        self._hung: set[int] = set()
        self._cut_off = False

    def hangs(self, number: int) -> None:
        """A process hangs, for any time."""
        self._hung.add(number)

    def cut_off(self) -> None:
        """Two processes are cut off from each other for good."""
        self._cut_off = True

    def decided(
        self,
        instructions: Sequence[JobInstruction],
        processes: Mapping[int, LocalProcess],
        control_is_slow: bool,
        connecting_is_slow: bool,
    ) -> None:
        """Checks instructions of the coordinator before they are carried out."""
        killed = -1
        for instruction in instructions:
            match instruction:
                case KillProcess(number):
                    killed = number
                case ReportEvent(TaskLost(task, reason) | StandbyLost(task, reason)) if killed in processes:
                    if reason.startswith(_SILENT):
                        fair = killed in self._hung or control_is_slow
                        check(fair, f"{task} was replaced, {reason}, though process {killed} had not hung")
                    elif reason.startswith(_UNREACHABLE):
                        fair = self._cut_off or connecting_is_slow
                        check(fair, f"{task} was replaced, {reason}, though no process was cut off")
                    killed = -1
                case _:
                    pass
