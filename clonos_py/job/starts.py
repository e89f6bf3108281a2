"""Processes that were asked for and have not come up: how long they are waited for.

A platform without resources, or with a node that hangs, says nothing at all. While others still come up it is only
slow, so the limit counts from the last that did.
"""

from __future__ import annotations

from collections.abc import Sequence

from clonos_py.job.context import CoordinatorContext
from clonos_py.job.fleet import TaskProcess
from clonos_py.model.ids import TaskId

_NAMED_MAX = 3
_REUSE_TIMEOUTS = 3
"""Where a process begins in the place of another, its host process has failed if it is silent for so many heartbeat
timeouts."""


class Starts:
    """Knows who is overdue. What to do about it is for the coordinator to say."""

    def __init__(self, context: CoordinatorContext) -> None:
        self._context = context
        self._came_up_us = 0

    def came_up(self) -> None:
        """A process says that it has started."""
        self._came_up_us = self._context.now_us

    def overdue(self) -> list[TaskProcess]:
        """Those that have not started in time."""
        asked = [p for p in self._context.fleet.processes.values() if p.address is None]
        return [process for process in asked if self._waited_us(process) >= self._limit_us(process)]

    def _waited_us(self, process: TaskProcess) -> int:
        return self._context.now_us - max(process.last_seen_us, self._came_up_us)

    def _limit_us(self, process: TaskProcess) -> int:
        policy = self._context.policy
        return _REUSE_TIMEOUTS * policy.heartbeat_timeout_us if process.reuses else policy.start_timeout_us

    def complaint(self, tasks: Sequence[TaskId]) -> str:
        """What to tell the user if these tasks have no process."""
        named = ", ".join(str(task) for task in tasks[:_NAMED_MAX])
        more = f" and {len(tasks) - _NAMED_MAX} more" if len(tasks) > _NAMED_MAX else ""
        return (
            f"{named}{more} could not be started: the cluster has brought up no process for "
            f"{self._context.policy.start_timeout_us / 1e6:g} s; see with `ray status` whether memory is left and "
            "every node answers, or wait longer with --start-timeout"
        )
