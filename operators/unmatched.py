"""The rows of one side of a join that have had no match yet, and when none can come any more."""

from __future__ import annotations

import numpy as np

from clonos_py.columns.views import Bools, Ints
from clonos_py.operators.due_queue import DueQueue


class Unmatched:
    """Rows by number, in the order in which they were appended. A row is *settled* once it has had a match, or was
    found to have none."""

    def __init__(self) -> None:
        self._settled = np.zeros(0, bool)
        self._rows = 0
        self._due = DueQueue()

    @property
    def settled(self) -> Bools:
        """By row: whether it is settled."""
        return self._settled[: self._rows]

    def append(self, settled: Bools, last_match: Ints | None) -> None:
        """Adds rows. ``last_match``: the latest event time at which each may still get a match; None if that is never
        asked."""
        first, self._rows = self._rows, self._rows + len(settled)
        if self._rows > len(self._settled):
            self._settled = np.append(self._settled[:first], np.zeros(self._rows, bool))
        self._settled[first : self._rows] = settled
        if last_match is not None:
            unsettled = np.flatnonzero(~settled)
            self._due.push(last_match[unsettled], first + unsettled)

    def settle(self, rows: Ints) -> None:
        """These rows have a match."""
        self._settled[rows] = True

    def settled_first(self, rows: Ints) -> Ints:
        """These rows have a match. Returns those for which it is the first one, once each, in their order."""
        found = np.unique(rows[~self._settled[rows]])
        self._settled[found] = True
        return found

    def pop(self, watermark: int) -> Ints:
        """The rows that got no match and can get none from rows that are not before ``watermark``. They are settled."""
        return self.settled_first(self._due.pop(watermark - 1))

    def load(self, settled: Bools, last_match: Ints | None) -> None:
        """Replaces all rows."""
        self._rows, self._settled, self._due = 0, np.zeros(0, bool), DueQueue()
        self.append(settled, last_match)
