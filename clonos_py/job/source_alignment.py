"""Watermark alignment: up to which event time each source may read, so that none runs far ahead of the slowest.

Every few milliseconds the coordinator sends each source the event time up to which it may read now, and the source
answers with the event time that it has reached. A source waits until it has its first limit, once it has a watermark.
The limits are advice: a source that waits makes no choice that a replay has to repeat, since a read is logged when it
happens. So limits are neither logged nor stored. A source that is replaced, or that has another coordinator, waits for
the next one.
"""

from __future__ import annotations

from collections.abc import Mapping

from clonos_py.job.context import CoordinatorContext
from clonos_py.job.events import Instructions, Send
from clonos_py.model.ids import TaskId
from clonos_py.model.messages import AlignSource, SourceReached
from clonos_py.model.plan import PhysicalPlan
from clonos_py.model.times import MAX_TIME, MIN_TIME

INTERVAL_US = 20_000
"""The time between two limits of a source."""


class SourceAlignment:
    """The limits of all sources. Does nothing if no source has one."""

    def __init__(self, context: CoordinatorContext) -> None:
        self._context = context
        self._ahead = _ahead(context.plan)
        self._reached = dict.fromkeys(self._ahead, MIN_TIME)
        """By source: the event time that it has reached; MAX_TIME if it holds none back."""
        self._due_us = 0 if any(ahead is not None for ahead in self._ahead.values()) else MAX_TIME

    @property
    def wake_us(self) -> int:
        """When ``advance`` must be called next, if all tasks run."""
        return self._due_us

    def advance(self) -> Instructions:
        """Sends limits, if they are due. All tasks run."""
        if self._due_us > self._context.now_us:
            return []
        self._due_us = self._context.now_us + INTERVAL_US
        slowest = min(self._reached.values())
        return [
            Send(self._context.fleet.owner_of(task).number, AlignSource(_limit(slowest, ahead)))
            for task, ahead in self._ahead.items()
        ]

    def answer(self, task: TaskId, message: SourceReached) -> None:
        """Stores how far a source is."""
        self._reached[task] = message.reached_us


def _ahead(plan: PhysicalPlan) -> Mapping[TaskId, int | None]:
    """By source: how far its watermark may be ahead of the slowest; None for any distance."""
    sources = {vertex.name: vertex.source for vertex in plan.vertices if vertex.source is not None}
    return {task: sources[task.vertex].event_time.ahead_us for task in plan.tasks if task.vertex in sources}


def _limit(slowest: int, ahead: int | None) -> int:
    if ahead is None or slowest == MAX_TIME:
        return MAX_TIME
    return slowest if slowest == MIN_TIME else slowest + ahead
