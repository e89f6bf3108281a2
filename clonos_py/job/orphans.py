"""Orphans: survivors that depend on determinants lost with their holders (Clonos, section 5.3, Figure 4; D10).

    failed --> failed, or running and not caught up --> ... --> survivor

The determinants of a failed task travel with its frames down every path, as far as the sharing depth allows. A path is
covered if it meets a process that has not failed, has caught up, and lies within the sharing depth all the way. Tasks
beyond such a holder depend only on determinants that the holder has. A process that the search meets before a holder,
and that has received anything from there, is an orphan. So is a process that holds a log from there without all the
determinants that this log depends on: it may be the only holder, and the log would be replayed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping

from clonos_py.model.ids import TaskId
from clonos_py.model.messages import HeldLogsReport
from clonos_py.model.plan import PhysicalPlan

Survivors = Mapping[TaskId, HeldLogsReport]
"""By task: the report of its process. Tasks whose process has only just been promoted are missing."""


def orphans(plan: PhysicalPlan, failed: Collection[TaskId], survivors: Survivors) -> dict[TaskId, TaskId]:
    """By failed task whose determinants are lost: a task that depends on them. Empty if replay can recover all."""
    found = {}
    for origin in sorted(failed):
        dependant = _dependant(plan, origin, survivors) or _lost(plan, origin, survivors)
        if dependant is not None:
            found[origin] = dependant
    return found


def explanation(plan: PhysicalPlan, found: Mapping[TaskId, TaskId], failed: Iterable[TaskId]) -> str:
    """A message for users."""
    origin, dependant = min(found.items())
    names = ", ".join(str(task) for task in sorted(failed))
    lost = f"{dependant} depends on {origin}, whose determinants were lost with {names}"
    if plan.sharing_depth < 0:
        return f"{lost}, though the sharing depth is full"
    return f"{lost}: sharing depth {plan.covered} covers {plan.covered} consecutive failures"


def _dependant(plan: PhysicalPlan, origin: TaskId, survivors: Survivors) -> TaskId | None:
    """Searches every path from a failed task until a process covers it. A task is visited again when the search finds
    more tasks before it on such paths; in a loop these may also be behind it."""
    log_of_origin = origin.log_id
    passed: dict[tuple[TaskId, bool], set[TaskId]] = {(origin, True): set()}
    """By task reached on an uncovered path, and whether the log of ``origin`` can have been shared along it: the tasks
    on such paths behind ``origin``, the task itself included. Their logs may depend on the log of ``origin``."""
    waiting = deque(passed)
    while waiting:
        sender, carried = waiting.popleft()
        before = passed[sender, carried]
        for channel in plan.outputs[sender]:
            task = plan.receiver(channel)
            if task in (origin, sender):
                continue  # what comes back in a loop gives a task no new dependency on itself
            shared = carried and plan.shares(origin, task)
            answer = survivors.get(task)
            if answer is not None:
                index = plan.inputs[task].index(channel)
                if shared and log_of_origin not in answer.incomplete.get(index, ()):
                    continue
                if index in answer.depends or (index in answer.replayed and not shared):
                    return task
                received = answer.logs_received.get(index, ())
                if log_of_origin not in answer.whole and any(plan.logs[log] in before for log in received):
                    return task
                if answer.has_own_log:
                    continue  # tasks beyond it depend on no more than its log does, which is checked by itself
            known = passed.setdefault((task, shared), set())
            if not known >= before | {task}:
                known |= before | {task}
                waiting.append((task, shared))
    return None


def _lost(plan: PhysicalPlan, origin: TaskId, survivors: Survivors) -> TaskId | None:
    """A process that has yet to replay a log depends on as much of the upstream logs as the holders of that log."""
    log = origin.log_id
    held = max((answer.end(log) for answer in survivors.values()), default=0)
    return next((task for task, answer in sorted(survivors.items()) if answer.needs.get(log, 0) > held), None)
