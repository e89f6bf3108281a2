"""When tasks that take snapshots alone are triggered (E5).

*Staggered* triggers begin with the tasks that send to no other task. A task is triggered when the new snapshots of all
its receivers count. So hardly any frames lie between its snapshot and theirs, and only such frames must be stored. A
job that has no checkpoint yet takes its first as soon as it runs: until then no snapshot of a receiver counts, and
senders would have to store all frames that they have sent.

*Independent* triggers come at times of each task's own, as in CheckMate (III-B). On average, half an interval of frames
lies between the snapshots of a task and those of its receivers.

A task is not triggered while its last triggered snapshot is not durable yet. On a slow disk its interval becomes
longer: otherwise snapshots would be taken that only queue for the disk. Other tasks are triggered in time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

import xxhash

from clonos_py.job.completed import CompletedCheckpoint
from clonos_py.job.context import CoordinatorContext
from clonos_py.model.ids import TaskId
from clonos_py.model.times import MAX_TIME

_JITTER = 0.2
"""An independent interval is longer or shorter by up to this fraction."""


class TriggerSchedule(ABC):
    """A schedule of triggers. It starts when all tasks run for the first time."""

    wait_for_manifests: ClassVar[bool]
    """Whether triggers wait for the snapshots of other tasks to count."""

    def __init__(self, context: CoordinatorContext, awaited: Callable[[TaskId], bool]) -> None:
        """``awaited``: whether the last triggered snapshot of a task is not durable yet."""
        self._context, self._awaited = context, awaited

    @property
    def _interval_us(self) -> int:
        return self._context.interval_us

    @abstractmethod
    def begin(self) -> None:
        """All tasks run: the first interval begins, unless it already has."""

    @property
    @abstractmethod
    def wake_us(self) -> int:
        """When ``due`` must be called next."""

    @abstractmethod
    def due(self) -> list[TaskId]:
        """The tasks to trigger now. A task that cannot be triggered now waits for its next time. One whose last
        snapshot is awaited is triggered as soon as that is durable."""


class StaggeredTriggers(TriggerSchedule):
    """Triggers receivers before senders. ``_waiting``: the tasks that the current wave has not triggered yet, with the
    epochs that their receivers had when it began."""

    wait_for_manifests = True

    def __init__(
        self, context: CoordinatorContext, awaited: Callable[[TaskId], bool], completed: CompletedCheckpoint
    ) -> None:
        super().__init__(context, awaited)
        self._completed = completed
        self._waiting: dict[TaskId, dict[TaskId, int]] = {}
        self._since_us: int | None = None
        """When the current interval began."""
        self._late_us = MAX_TIME
        self._late = False
        """Whether the tasks of this wave are triggered even if the new snapshots of their receivers do not count."""

    def begin(self) -> None:
        if self._interval_us and self._since_us is None:
            self._since_us = self._context.now_us
            self._waiting = {task: {} for task in self._context.plan.tasks if not self._completed.epoch(task)}

    @property
    def _next_us(self) -> int:
        """When the interval ends."""
        return MAX_TIME if self._since_us is None else self._since_us + self._interval_us

    @property
    def wake_us(self) -> int:
        ready = any(map(self._ready, self._waiting))
        return self._context.now_us if ready else min(self._next_us, self._late_us)

    def due(self) -> list[TaskId]:
        now_us = self._context.now_us
        if self._next_us <= now_us:
            self._since_us, self._late_us = now_us, now_us + self._interval_us // 2
            self._waiting = {task: self._epochs(task) for task in self._context.plan.tasks}
            self._late = False
        if self._late_us <= now_us:  # do not wait longer for a receiver that is slow or has failed
            self._late, self._late_us = True, MAX_TIME
        found = [task for task in self._waiting if self._ready(task)]
        for task in found:
            del self._waiting[task]
        if not self._waiting:
            self._late_us = MAX_TIME
        return found

    def _epochs(self, task: TaskId) -> dict[TaskId, int]:
        """The epochs of its receivers. Feedback edges are left out, since in a loop no task would be the first."""
        plan = self._context.plan
        channels = [channel for channel in plan.outputs[task] if not plan.edges[channel.edge].feedback]
        return {receiver: self._completed.epoch(receiver) for receiver in map(plan.receiver, channels)}

    def _ready(self, task: TaskId) -> bool:
        passed = (self._completed.epoch(receiver) > epoch for receiver, epoch in self._waiting[task].items())
        return (self._late or all(passed)) and not self._awaited(task)


class IndependentTriggers(TriggerSchedule):
    """Triggers each task at times of its own, drawn by a hash, so that a replay of this coordinator draws the same."""

    wait_for_manifests = False

    def __init__(self, context: CoordinatorContext, awaited: Callable[[TaskId], bool]) -> None:
        super().__init__(context, awaited)
        self._intervals: dict[TaskId, tuple[int, float]] = {}
        """By task: when its interval began, and how long it is, as a multiple of the job's."""
        self._drawn = 0

    def begin(self) -> None:
        if self._interval_us and not self._intervals:
            self._intervals = {task: self._draw(task) for task in self._context.plan.tasks}

    @property
    def wake_us(self) -> int:
        return min((self._next_us(task) for task in self._intervals if not self._awaited(task)), default=MAX_TIME)

    def due(self) -> list[TaskId]:
        now_us = self._context.now_us
        found = [task for task in self._intervals if self._next_us(task) <= now_us and not self._awaited(task)]
        for task in found:
            self._intervals[task] = self._draw(task)
        return found

    def _next_us(self, task: TaskId) -> int:
        since_us, times = self._intervals[task]
        return since_us + round(self._interval_us * times)

    def _draw(self, task: TaskId) -> tuple[int, float]:
        self._drawn += 1
        dice = xxhash.xxh3_64_intdigest(f"{self._context.policy.lineage} {task} {self._drawn}".encode()) / 2**64
        return self._context.now_us, 1 + _JITTER * (2 * dice - 1)
