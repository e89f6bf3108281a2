"""Decides when to start a standby: not while a deployment or a recovery needs the processors.

A new process computes for a second before it is a standby. If it started at once, it would compete with the tasks that
a job waits for. So standbys of a new job wait until all of its tasks run. A process that replaces a used standby waits
until the replacements have had their first new effect, but not forever. A process that a deployment
or a recovery waits for is started at once. No I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Callable

from clonos_py.job.events import StartProcess
from clonos_py.model.coordinator_events import CoordinatorEvent, Deployed, FirstNewEffect, RolledBack, TaskLost
from clonos_py.model.ids import TaskId
from clonos_py.model.times import MAX_TIME

PATIENCE_US = 2_000_000


class StandbyStarts:
    """Takes the coordinator's requests and events, and returns the processes to start now."""

    def __init__(self, patience_us: int = PATIENCE_US, deploys: bool = False) -> None:
        """``patience_us``: how long a process waits for a recovery at most; 0: none waits, for a deployment either.
        ``deploys``: the job has not run yet, and this coordinator has requested no process yet."""
        self._patience_us = patience_us
        self._deploying = deploys and patience_us > 0
        self._for_deployment: list[StartProcess] = []
        self._deployed: dict[int, TaskId] = {}
        """The task of each process that was requested for the deployment, or started ahead of it."""
        self._recovering: set[TaskId] = set()
        self._promoted: set[TaskId] = set()
        self._for_recovery: list[StartProcess] = []
        self._until_us = 0

    @property
    def due_us(self) -> int:
        """When processes that wait for a recovery start at the latest; MAX_TIME if none waits."""
        return self._until_us if self._for_recovery else MAX_TIME

    def on_prepared(self, number: int, task: TaskId) -> None:
        """A process was started ahead of the deployment."""
        if self._deploying:
            self._deployed[number] = task

    def on_start(self, request: StartProcess, now_us: int) -> list[StartProcess]:
        self.on_prepared(request.process, request.task)
        if self._deploying and request.shares:
            self._for_deployment.append(request)
            return []
        needed = request.task in self._recovering and request.task not in self._promoted
        if needed or not self._recovering or not self._patience_us:
            return [request]
        if not self._for_recovery:
            self._until_us = now_us + self._patience_us
        self._for_recovery.append(request)
        return []

    def on_promoted(self, task: TaskId) -> None:
        self._promoted.add(task)

    def on_gone(self, number: int) -> list[StartProcess]:
        """A process has died. If the job is being deployed, its task needs the next one."""
        task = self._deployed.pop(number, None)
        needed = [request for request in self._for_deployment if request.task == task]
        self._for_deployment = [request for request in self._for_deployment if request.task != task]
        return needed

    def on_event(self, event: CoordinatorEvent) -> list[StartProcess]:
        match event:
            case Deployed():
                self._deploying = False
                self._deployed.clear()
                released, self._for_deployment = self._for_deployment, []
                return released
            case TaskLost(task):
                self._recovering.add(task)
                self._promoted.discard(task)
                return self._release(lambda request: request.task == task)
            case FirstNewEffect(task):
                self._recovering.discard(task)
            case RolledBack():
                self._recovering.clear()
            case _:
                return []
        return [] if self._recovering else self._release(lambda request: True)

    def on_time(self, now_us: int) -> list[StartProcess]:
        if self._for_recovery and self._until_us <= now_us:
            self._recovering.clear()
            return self._release(lambda request: True)
        return []

    def _release(self, chosen: Callable[[StartProcess], bool]) -> list[StartProcess]:
        released = [request for request in self._for_recovery if chosen(request)]
        self._for_recovery = [request for request in self._for_recovery if not chosen(request)]
        return released
