"""Orphans: survivors that depend on determinants which died with their holders (Clonos, section 5.3 and Figure 4; D10).

    failed --> failed, or alive and not caught up --> ... --> survivor

What a failed task decided travels with its frames down every path, as far as the sharing depth allows. A path is
covered where it meets a process that is alive, within the depth all the way, and caught up; what lies beyond depends
on nothing that this holder does not know. A process that is met before, and has received anything from there, is an
orphan. So is one that holds a log from there that depends on what is lost: it may be the only one, and is replayed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping

from clonos_py.model.ids import TaskId
from clonos_py.model.messages import HeldLogsReport
from clonos_py.model.plan import PhysicalPlan

Survivors = Mapping[TaskId, HeldLogsReport]
"""What the process that is a task has answered. Tasks whose process has only now been told to be it are not in it."""


def orphans(plan: PhysicalPlan, failed: Collection[TaskId], survivors: Survivors) -> dict[TaskId, TaskId]:
    """By failed task whose determinants are lost: one that depends on them. Empty if replay can heal the failures."""
    found = {}
    for origin in sorted(failed):
        dependant = _dependant(plan, origin, survivors) or _lost(plan, origin, survivors)
        if dependant is not None:
            found[origin] = dependant
    return found


def story(plan: PhysicalPlan, found: Mapping[TaskId, TaskId], failed: Iterable[TaskId]) -> str:
    """For people."""
    origin, dependant = min(found.items())
    depth = plan.covered
    names = ", ".join(str(task) for task in sorted(failed))
    return (
        f"{dependant} depends on {origin}, whose determinants died with {names}: sharing depth {depth} covers "
        f"{depth} consecutive failures"
    )


def _dependant(plan: PhysicalPlan, origin: TaskId, survivors: Survivors) -> TaskId | None:
    """Goes down every path from a failed task as far as no process covers it. A task is visited again when it turns out
    that more tasks are on such paths before it, which in a loop may be after it, too."""
    number = plan.tasks.index(origin)
    passed: dict[tuple[TaskId, bool], set[TaskId]] = {(origin, True): set()}
    """By task reached on an uncovered path, and whether the log of ``origin`` can have come along: the tasks on such
    paths after ``origin``, the task itself included. Their logs may depend on that of ``origin``."""
    waiting = deque(passed)
    while waiting:
        sender, carried = waiting.popleft()
        before = passed[sender, carried]
        for channel in plan.outputs[sender]:
            task = plan.receiver(channel)
            if task in (origin, sender):
                continue  # what goes round a loop tells no task anything new of itself
            shared = carried and plan.shares(origin, task)
            answer = survivors.get(task)
            if answer is not None:
                index = plan.inputs[task].index(channel)
                if shared and number not in answer.lacking.get(index, ()):
                    continue
                if index in answer.depends or (index in answer.replayed and not shared):
                    return task
                if any(plan.tasks[log] in before for log in answer.logs_received.get(index, ())):
                    return task
                if answer.settled:
                    continue  # beyond it no task depends on more than its log does, which is weighed by itself
            known = passed.setdefault((task, shared), set())
            if not known >= before | {task}:
                known |= before | {task}
                waiting.append((task, shared))
    return None


def _lost(plan: PhysicalPlan, origin: TaskId, survivors: Survivors) -> TaskId | None:
    """A process that has yet to replay a log depends on as much of the upstream logs as those who gave it had."""
    number = plan.tasks.index(origin)
    held = max((s.stop for answer in survivors.values() for s in answer.logs if s.task == number), default=0)
    return next((task for task, answer in sorted(survivors.items()) if answer.needs.get(number, 0) > held), None)
