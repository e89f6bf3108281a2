"""D10 from outside: computes orphans from happened-before alone, and whether a rollback is called for.

The coordinator decides from the messages of processes. The checker has complete data: for each process, the events of
every task on which its received frames depend. So the two can be compared, and they share no code.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from clonos_py.model.ids import LogId, TaskId
from clonos_py.model.plan import PhysicalPlan

Extent = Mapping[LogId, int]
"""By log: the offset up to which something depends on it, or holds it."""


@dataclass(frozen=True)
class Survivor:
    """An active process that has not failed."""

    task: TaskId
    depends: Extent
    holds: Extent
    received_from: Collection[TaskId]
    """The tasks from which it received frames since its restart point, or whose logs it holds a part of."""


def orphan(
    plan: PhysicalPlan, replays: Extent, stable: Extent, survivors: Collection[Survivor]
) -> tuple[TaskId, TaskId] | None:
    """An orphan and the failed task on which it depends: it depends on more of that task's log than the replacement
    gets (equation 1 after a failure). None if there is no orphan. ``replays``: by failed task, the end of the log that
    its replacement gets."""
    for survivor in survivors:
        for log, offset in survivor.depends.items():
            if log in replays and offset > max(replays[log], stable[log]):
                return survivor.task, plan.logs[log]
    return None


def called_for(plan: PhysicalPlan, failed: Collection[TaskId], stable: Extent, survivors: Collection[Survivor]) -> bool:
    """Whether a rollback is justified: if there is an orphan, or if there may be one by the lengths of paths. A
    receiver of the last of several consecutive failed tasks may depend on all of them."""
    for task in failed:
        known = max((s.holds.get(task.log_id, 0) for s in survivors), default=0)
        if orphan(plan, {task.log_id: known}, stable, survivors) or _too_far(plan, task, failed, survivors):
            return True
    return False


def _too_far(plan: PhysicalPlan, start: TaskId, failed: Collection[TaskId], survivors: Collection[Survivor]) -> bool:
    """Whether a path from ``start`` through failed tasks to a survivor is longer than the sharing depth, and frames
    have passed its last hop."""
    depth = plan.covered
    if depth >= plan.depth:
        return False
    by_task = {survivor.task: survivor for survivor in survivors}
    front, hops = {start}, 0
    while front:
        hops += 1
        ways = {(task, plan.receiver(c)) for task in front for c in plan.outputs[task]}
        if hops > depth and any(to in by_task and via in by_task[to].received_from for via, to in ways):
            return True
        front = {to for _, to in ways if to in failed}
    return False


def must_hold(plan: PhysicalPlan) -> dict[TaskId, frozenset[LogId]]:
    """By task: the logs that it must hold as far as it depends on them. With full sharing depth these are all
    upstream tasks, else those from which no path is longer than the sharing depth: over a longer path a task may depend
    on more than it holds."""
    depth = plan.covered
    longest = {} if depth >= plan.depth else _longest_ways(plan)
    return {
        task: frozenset(
            origin.log_id
            for origin in plan.tasks
            if task in plan.hops[origin] and longest.get((origin, task), 0) <= depth
        )
        for task in plan.tasks
    }


def may_hold(plan: PhysicalPlan) -> dict[TaskId, frozenset[LogId]]:
    """By task: the logs that may be sent to it: those of tasks within the sharing depth (equations 2 and 3)."""
    depth = plan.covered
    return {
        task: frozenset(origin.log_id for origin in plan.tasks if plan.hops[origin].get(task, depth + 1) <= depth)
        for task in plan.tasks
    }


def _longest_ways(plan: PhysicalPlan) -> dict[tuple[TaskId, TaskId], int]:
    """The longest path between each two tasks, in a graph without loops: jobs with loops need full depth or none. Tasks
    are in topological order, so that one pass per origin is enough."""
    longest: dict[tuple[TaskId, TaskId], int] = {}
    senders = {task: {plan.sender(c) for c in plan.inputs[task]} for task in plan.tasks}
    for origin in plan.tasks:
        reached = {origin: 0}
        for task in plan.tasks:
            ways = [reached[sender] + 1 for sender in senders[task] if sender in reached]
            if ways:
                reached[task] = longest[origin, task] = max(ways)
    return longest
