"""Snapshots that are part of no recovery line, by definition: communication-induced checkpoints have none (E10).

What a task has taken and sent when it took a snapshot is all that is needed; stamps are not looked at. A snapshot is
useless if no choice of one snapshot of each task that fits together contains it.

It is looked at when a job with loops that replays its determinants has ended. Without loops no snapshot can be useless.
Rollback recovery is left out: a rollback undoes snapshots and frames, so that those that a snapshot fitted may be gone,
though it was useful when it was taken. What a rollback must choose is checked in ``lines``.
"""

from __future__ import annotations

from clonos_py.checkpoint.line import Positions, at_the_start, line_channels, recovery_line
from clonos_py.model.ids import TaskId
from clonos_py.model.plan import PhysicalPlan
from clonos_py.process.contract import TaskProgress


class SnapshotHistory:
    """The snapshots of all tasks of one job, durable or not, that no failure has undone."""

    def __init__(self, plan: PhysicalPlan) -> None:
        self._plan, self._channels = plan, line_channels(plan)
        self._taken: dict[TaskId, dict[int, Positions]] = {task: {} for task in plan.tasks}

    def took(self, task: TaskId, epoch: int, progress: TaskProgress) -> None:
        """A task has taken the snapshot that begins this epoch; or a replay of it has passed it."""
        positions = Positions([channel.next_seq for channel in progress.inputs], list(progress.outputs))
        self._taken[task][epoch] = positions

    def restarts(self, task: TaskId, epoch: int) -> None:
        """The task goes on from the snapshot that begins this epoch, and takes those after it again, or others."""
        self._taken[task] = {taken: found for taken, found in self._taken[task].items() if taken <= epoch}

    def useless(self) -> list[str]:
        """Those that are, for people."""
        plan = self._plan
        histories = {task: [at_the_start(plan, task), *self._by_epoch(task)] for task in plan.tasks}
        found = []
        for task, history in histories.items():
            for index, epoch in enumerate(sorted(self._taken[task]), 1):
                line = recovery_line({**histories, task: history[: index + 1]}, self._channels)
                if line[task] != index:
                    found.append(f"the snapshot of {task} that begins epoch {epoch} is useless: it fits no others")
        return found

    def _by_epoch(self, task: TaskId) -> list[Positions]:
        return [positions for _, positions in sorted(self._taken[task].items())]
