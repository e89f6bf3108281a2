"""Checks that commits of transactional sinks are never undone (D16, E7), from the ledger of the sinks alone.

Each broken promise raises a ``Violation``:
- a sink commits only rows from before a snapshot, and its task never restarts from an earlier one;
- rows that a restart has undone are not committed afterwards;
- no task restarts from a snapshot older than the one whose rows its sinks have committed.
"""

from __future__ import annotations

from collections.abc import Mapping

from clonos_py.model.ids import TaskId
from clonos_py.runtime.sim.lines import LinePoints
from clonos_py.runtime.sim.violation import Violation, check


class Commits:
    """The commits of all sinks of one job, over all its runs."""

    def __init__(self, points: LinePoints) -> None:
        self._points = points
        self._prepared: dict[int, tuple[TaskId, int]] = {}
        """By number in the ledger: the task that prepared the rows, and for which snapshot."""
        self._of_others: set[int] = set()
        """What tasks of another parallelism have prepared."""
        self._committed: dict[TaskId, int] = {}
        """By task: the newest snapshot whose rows are committed."""

    def follow(self, former: Commits, checkpoint: int) -> None:
        """The job goes on at another parallelism, from this checkpoint: what was prepared for it, or before, is
        committed by other tasks, and what was prepared later is undone."""
        self._of_others = {staged for staged, (_, number) in former._prepared.items() if number <= checkpoint}

    def prepared(self, staged: int, task: TaskId, number: int) -> None:
        """A sink of ``task`` has prepared rows for snapshot ``number``. ``staged``: their number in the ledger."""
        self._prepared[staged] = task, number

    def commits(self, staged: int) -> None:
        """A sink is about to commit these rows."""
        if staged in self._of_others:
            return
        if staged not in self._prepared:
            raise Violation(f"rows are committed that a restart has undone: {staged} of the ledger")
        task, number = self._prepared[staged]
        safe = self._points.safe[task]
        if number > safe:
            raise Violation(f"{task} commits the rows of snapshot {number} and may restart from {safe}")
        self._committed[task] = max(number, self._committed.get(task, 0))

    def restart(self, restores: Mapping[TaskId, int]) -> None:
        """Tasks restart from these snapshots, by task."""
        for task, number in restores.items():
            committed = self._committed.get(task, 0)
            check(committed <= number, f"{task} restarts from snapshot {number}, its sinks have committed {committed}")
        self._prepared = {
            staged: (task, number)
            for staged, (task, number) in self._prepared.items()
            if number <= restores.get(task, number)
        }
