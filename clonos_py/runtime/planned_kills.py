"""When the tasks of ``--kill`` are killed: some time after the job was deployed first."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable

from clonos_py.model.ids import TaskId

_AGAIN_US = 50_000
"""If the task has no process, the kill is tried again after this time, on the replacement."""


class PlannedKills:
    """The kills that are still to come."""

    def __init__(self, kills: Iterable[tuple[int, TaskId]], deployed_us: int | None = None) -> None:
        """``kills``: tasks, each after so many microseconds from deployment. ``deployed_us``: when the job was
        deployed, if it has been."""
        self._later = list(kills)
        self._due: list[tuple[int, TaskId]] = []
        if deployed_us is not None:
            self.deployed(deployed_us)

    def deployed(self, at_us: int) -> None:
        """The job was deployed; only the first time counts."""
        for after_us, task in self._later:
            heapq.heappush(self._due, (at_us + after_us, task))
        self._later = []

    @property
    def next_us(self) -> int | None:
        """When ``carry_out`` must be called next; None if no kill is due."""
        return self._due[0][0] if self._due else None

    def carry_out(self, now_us: int, kill: Callable[[TaskId], bool]) -> None:
        """Calls ``kill`` for each task that is due. It returns whether the task had a process."""
        while self._due and self._due[0][0] <= now_us:
            _, task = heapq.heappop(self._due)
            if not kill(task):
                heapq.heappush(self._due, (now_us + _AGAIN_US, task))
