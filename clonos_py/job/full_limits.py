"""Lets sources end whose rows have no effect any more: all their ways lead to limits that are full.

A source that has ended cannot go on. So it is told only when no task can restart from where the limit was not full: a
checkpoint has it so. Until then one is triggered.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from clonos_py.job.checkpointing import JobCheckpointing
from clonos_py.job.context import CoordinatorContext
from clonos_py.job.events import Instructions, Send
from clonos_py.model.ids import TaskId
from clonos_py.model.messages import EndSource
from clonos_py.model.plan import PhysicalPlan
from clonos_py.model.purposes import Purpose


class FullLimits:
    """The limits that are full. ``trigger`` triggers a checkpoint; it does nothing if none can begin."""

    def __init__(
        self, context: CoordinatorContext, protocol: JobCheckpointing, trigger: Callable[[Purpose], Instructions]
    ) -> None:
        self._context, self._protocol, self._trigger = context, protocol, trigger
        self.full: dict[TaskId, int] = {}
        """By task: the epoch in which its limit was full."""

    def advance(self, owners: Mapping[TaskId, int]) -> Instructions:
        """Takes the next step. All tasks run. ``owners``: their processes."""
        if not self.full:
            return []
        plan, safe_epoch = self._context.plan, self._protocol.safe_epoch
        safe = sources_without_effect(
            plan, {task.vertex for task, epoch in self.full.items() if safe_epoch(task) > epoch}
        )
        if safe != sources_without_effect(plan, {task.vertex for task in self.full}):
            return self._trigger(Purpose.REQUESTED)
        return [Send(number, EndSource()) for task, number in owners.items() if task.vertex in safe]


def sources_without_effect(plan: PhysicalPlan, full: Collection[str]) -> frozenset[str]:
    """The vertices with sources from which no way leads to a sink but through a vertex of ``full``."""
    needed = {
        vertex.name
        for vertex in plan.vertices
        if vertex.name not in full and any(operator.sink for operator in vertex.operators)
    }
    size = -1
    while size < len(needed):
        size = len(needed)
        needed |= {edge.source for edge in plan.edges if edge.target in needed and edge.source not in full}
    return frozenset(v.name for v in plan.vertices if v.source is not None and v.name not in needed)
