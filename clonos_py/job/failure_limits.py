"""How often a job may fail before it ends: failures count until checkpoints show that the job makes progress (D9)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from clonos_py.job.events import JobPolicy
from clonos_py.model.ids import TaskId

_DEATHS = 5


class FailureLimits:
    """Counts the failures that processes report of themselves, by task, and the rollbacks of the job. A process that
    was killed, or was silent, does not count towards these limits: the cause may be outside. It is reported when a task
    has lost many of them."""

    def __init__(self, policy: JobPolicy, tasks: Collection[TaskId]) -> None:
        self._policy, self._tasks = policy, frozenset(tasks)
        self._failures: Counter[TaskId] = Counter()
        self._deaths: Counter[TaskId] = Counter()
        self._rollbacks = 0
        self._without_snapshot: set[TaskId] = set()
        """Tasks without a new snapshot since the last rollback."""

    def failed(self, task: TaskId) -> bool:
        """The process of a task has reported a failure. Returns whether it may be replaced."""
        self._failures[task] += 1
        return self._failures[task] <= self._policy.recoveries_max

    def died(self, task: TaskId) -> int | None:
        """The process of a task was lost for any reason. Returns how often that has happened, if it is to be reported:
        at first after ``_DEATHS``, then after twice as many each time."""
        self._deaths[task] += 1
        times, rest = divmod(self._deaths[task], _DEATHS)
        return self._deaths[task] if not rest and times.bit_count() == 1 else None

    def rolls_back(self, counted: bool) -> bool:
        """The job rolls back. ``counted``: this counts towards the limit. Returns whether it may."""
        self._rollbacks += counted
        self._without_snapshot = set(self._tasks)
        return self._rollbacks <= self._policy.rollbacks_max

    def progress(self, tasks: Collection[TaskId] | None) -> None:
        """A checkpoint is complete, for which ``tasks`` have taken snapshots; None: all, at the same time. The failures
        of these tasks count no longer, and rollbacks not when all tasks have new snapshots."""
        fresh = self._tasks if tasks is None else tasks
        for task in fresh:
            self._failures.pop(task, None)
            self._deaths.pop(task, None)
        self._without_snapshot.difference_update(fresh)
        if not self._without_snapshot:
            self._rollbacks = 0
