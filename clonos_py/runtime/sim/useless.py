"""Finds useless snapshots, by their definition: a protocol with stamps must take none (E10).

A snapshot is useless if no recovery line contains it: no set of fitting snapshots, one of each task. The check needs
only the frames that a task had taken and sent at each snapshot; it does not use stamps.

The check runs when a job with loops that replays its determinants has ended. Without loops no snapshot can be useless.
Rollback recovery is left out: a rollback undoes snapshots and frames, so the snapshots that a snapshot fitted may be
gone, even if it was useful when it was taken. ``lines`` checks the choice of a rollback.
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
        """A task has taken the snapshot that begins this epoch, or its replay has passed that snapshot."""
        positions = Positions([channel.next_seq for channel in progress.inputs], list(progress.outputs))
        self._taken[task][epoch] = positions

    def restarts(self, task: TaskId, epoch: int) -> None:
        """The task restarts from the snapshot that begins this epoch, or from a feed point in it. Later snapshots are
        dropped: it takes them again, or others."""
        self._taken[task] = {taken: found for taken, found in self._taken[task].items() if taken <= epoch}

    def useless(self) -> list[str]:
        """Readable descriptions of the useless snapshots."""
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
