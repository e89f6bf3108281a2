"""D10 from the outside: who depends on what is known of happened-before alone, and when a rollback is called for.

The coordinator decides from what processes tell it. Here everything is known: which events of which task the frames
that each process received depend on. So the two can be compared, and neither may borrow from the other.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from clonos_py.model.ids import TaskId
from clonos_py.model.plan import PhysicalPlan

Extent = Mapping[int, int]
"""By task number: how far into that task's log something depends on it, or holds it."""


@dataclass(frozen=True)
class Survivor:
    """A process that is its task and has not failed."""

    task: TaskId
    depends: Extent
    holds: Extent
    heard_from: Collection[TaskId]
    """Tasks of which it received any frame since its restart point, or any part of their logs."""


def orphan(
    plan: PhysicalPlan, replays: Extent, stable: Sequence[int], survivors: Collection[Survivor]
) -> tuple[TaskId, TaskId] | None:
    """(who, on whom): a task depends on more of a task's log than its replacement is given (equation 1 after a
    failure). ``replays``: by failed task, how far its log goes on."""
    for survivor in survivors:
        for number, offset in survivor.depends.items():
            if number in replays and offset > max(replays[number], stable[number]):
                return survivor.task, plan.tasks[number]
    return None


def called_for(
    plan: PhysicalPlan, failed: Collection[TaskId], stable: Sequence[int], survivors: Collection[Survivor]
) -> bool:
    """Whether a rollback is justified. It is if an orphan is there, and may be if only the lengths of paths speak for
    one: a receiver of the last of the failed tasks between might depend on all of them."""
    for task in failed:
        number = plan.tasks.index(task)
        known = max((s.holds.get(number, 0) for s in survivors), default=0)
        if orphan(plan, {number: known}, stable, survivors) or _too_far(plan, task, failed, survivors):
            return True
    return False


def _too_far(plan: PhysicalPlan, start: TaskId, failed: Collection[TaskId], survivors: Collection[Survivor]) -> bool:
    """A way from ``start`` through failed tasks to a survivor that is longer than the sharing depth and was used."""
    depth = plan.covered
    if depth >= plan.depth:
        return False
    by_task = {survivor.task: survivor for survivor in survivors}
    front, hops = {start}, 0
    while front:
        hops += 1
        ways = {(task, plan.receiver(c)) for task in front for c in plan.outputs[task]}
        if hops > depth and any(to in by_task and via in by_task[to].heard_from for via, to in ways):
            return True
        front = {to for _, to in ways if to in failed}
    return False


def must_hold(plan: PhysicalPlan) -> dict[TaskId, frozenset[int]]:
    """By task: the tasks whose logs it must hold as far as it depends on them. With full sharing depth all upstream of
    it; else those from which no way is longer than the sharing depth: over a longer one it may depend on more."""
    depth = plan.covered
    longest = {} if depth >= plan.depth else _longest_ways(plan)
    return {
        task: frozenset(
            number
            for number, origin in enumerate(plan.tasks)
            if task in plan.hops[origin] and longest.get((origin, task), 0) <= depth
        )
        for task in plan.tasks
    }


def may_hold(plan: PhysicalPlan) -> dict[TaskId, frozenset[int]]:
    """By task: the tasks whose logs may be sent to it, those within the sharing depth (equations 2 and 3)."""
    depth = plan.covered
    return {
        task: frozenset(n for n, origin in enumerate(plan.tasks) if plan.hops[origin].get(task, depth + 1) <= depth)
        for task in plan.tasks
    }


def _longest_ways(plan: PhysicalPlan) -> dict[tuple[TaskId, TaskId], int]:
    """Of a graph without loops, as they need full depth or none. Tasks are in topological order, so that one pass per
    origin is enough."""
    longest: dict[tuple[TaskId, TaskId], int] = {}
    senders = {task: {plan.sender(c) for c in plan.inputs[task]} for task in plan.tasks}
    for origin in plan.tasks:
        reached = {origin: 0}
        for task in plan.tasks:
            ways = [reached[sender] + 1 for sender in senders[task] if sender in reached]
            if ways:
                reached[task] = longest[origin, task] = max(ways)
    return longest
