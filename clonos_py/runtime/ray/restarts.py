"""Decides when to start a process that replaces a used standby: not while a recovery needs the processors.

A new process computes for seconds before it is a standby. If it started at once, it would compete with the replay that
made it necessary. So it waits until the replacements have had their first new effect, but no longer than
``PATIENCE_US``. A process that a recovery waits for is started at once. No I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Callable

from clonos_py.job.events import StartProcess
from clonos_py.model.coordinator_events import CoordinatorEvent, FirstNewEffect, RolledBack, TaskLost
from clonos_py.model.ids import TaskId

PATIENCE_US = 2_000_000


class Restarts:
    """Takes the coordinator's requests and events, and returns the processes to start now."""

    def __init__(self) -> None:
        self._recovering: set[TaskId] = set()
        self._promoted: set[TaskId] = set()
        self._waiting: list[StartProcess] = []
        self._until_us = 0

    @property
    def due_us(self) -> int | None:
        """When waiting processes start at the latest; None if none waits."""
        return self._until_us if self._waiting else None

    def on_start(self, request: StartProcess, now_us: int) -> list[StartProcess]:
        needed = request.task in self._recovering and request.task not in self._promoted
        if needed or not self._recovering:
            return [request]
        if not self._waiting:
            self._until_us = now_us + PATIENCE_US
        self._waiting.append(request)
        return []

    def on_promoted(self, task: TaskId) -> None:
        self._promoted.add(task)

    def on_event(self, event: CoordinatorEvent) -> list[StartProcess]:
        match event:
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
        if self._waiting and self._until_us <= now_us:
            self._recovering.clear()
            return self._release(lambda request: True)
        return []

    def _release(self, chosen: Callable[[StartProcess], bool]) -> list[StartProcess]:
        released = [request for request in self._waiting if chosen(request)]
        self._waiting = [request for request in self._waiting if not chosen(request)]
        return released
