"""Timeouts of processes that were requested and have not started.

A cluster without resources, or with a node that hangs, reports nothing at all. As long as other processes still start,
it is only slow: the timeout counts from the last process that started.
"""

from __future__ import annotations

from collections.abc import Sequence

from clonos_py.job.context import CoordinatorContext
from clonos_py.job.fleet import TaskProcess
from clonos_py.model.ids import TaskId

_NAMED_MAX = 3
_REUSE_TIMEOUTS = 3
"""A process that reuses a host process has failed if it is silent for this many heartbeat timeouts."""


class Starts:
    """Finds the processes that are overdue. The coordinator decides what to do about them."""

    def __init__(self, context: CoordinatorContext) -> None:
        self._context = context
        self._last_start_us = 0

    def process_started(self) -> None:
        """A process has reported that it has started."""
        self._last_start_us = self._context.now_us

    def overdue(self) -> list[TaskProcess]:
        """The processes that have not started in time. A standby for which no node has room is not one of them: the
        job goes on without it."""
        processes = self._context.fleet.processes.values()
        asked = [p for p in processes if p.address is None and not (p.lacks_room and p.shares)]
        return [process for process in asked if self._waited_us(process) >= self._limit_us(process)]

    def _waited_us(self, process: TaskProcess) -> int:
        return self._context.now_us - max(process.last_seen_us, self._last_start_us)

    def _limit_us(self, process: TaskProcess) -> int:
        policy = self._context.policy
        return _REUSE_TIMEOUTS * policy.heartbeat_timeout_us if process.reuses else policy.start_timeout_us

    def complaint(self, tasks: Sequence[TaskId]) -> str:
        """The error message for tasks that have no process."""
        named = ", ".join(str(task) for task in tasks[:_NAMED_MAX])
        more = f" and {len(tasks) - _NAMED_MAX} more" if len(tasks) > _NAMED_MAX else ""
        lacking = [p.lacks_room for task in tasks for p in self._context.fleet.standbys(task) if p.lacks_room]
        if lacking:
            return (
                f"{named}{more} found no room for {self._context.policy.start_timeout_us / 1e6:g} s: {lacking[0]}; add "
                "a node, or wait longer with --start-timeout"
            )
        return (
            f"{named}{more} could not be started: the cluster has brought up no process for "
            f"{self._context.policy.start_timeout_us / 1e6:g} s; see with `ray status` whether memory is left and "
            "every node answers, or wait longer with --start-timeout"
        )
