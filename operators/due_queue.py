"""A priority queue of row numbers by due time, for whole batches.

It is a log-structured merge of runs sorted by time, each read from its front. So neither a push nor a check at a
watermark scans the rows that are not due yet.
"""

from __future__ import annotations

import numpy as np

from clonos_py.columns.ordering import stable_order
from clonos_py.columns.views import Ints


class DueQueue:
    """Row numbers by due time. A row may be pushed again; the caller must ignore outdated entries."""

    def __init__(self) -> None:
        self._runs: list[tuple[Ints, Ints]] = []
        self._next = np.iinfo(np.int64).max

    def push(self, times: Ints, rows: Ints) -> None:
        if len(times) == 0:
            return
        order = stable_order(times)
        self._runs.append((times[order], rows[order]))
        self._next = min(self._next, int(times[order[0]]))
        while len(self._runs) > 1 and len(self._runs[-2][0]) < 2 * len(self._runs[-1][0]):
            last = self._runs.pop()
            self._runs[-1] = _merged(self._runs[-1], last)

    def pop(self, until: int) -> Ints:
        """Removes and returns all rows due at or before ``until``, in the order of their numbers."""
        if not self._runs or until < self._next:
            return np.empty(0, np.int64)
        cuts = [int(np.searchsorted(times, until, side="right")) for times, _ in self._runs]
        due = [rows[:cut] for (_, rows), cut in zip(self._runs, cuts, strict=True)]
        rest = [(times[cut:], rows[cut:]) for (times, rows), cut in zip(self._runs, cuts, strict=True)]
        self._runs = [run for run in rest if len(run[0])]
        self._next = min((int(times[0]) for times, _ in self._runs), default=np.iinfo(np.int64).max)
        return np.sort(np.concatenate(due))


def _merged(left: tuple[Ints, Ints], right: tuple[Ints, Ints]) -> tuple[Ints, Ints]:
    times = np.concatenate([left[0], right[0]])
    rows = np.concatenate([left[1], right[1]])
    order = stable_order(times)
    return times[order], rows[order]
