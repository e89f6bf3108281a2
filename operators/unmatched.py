"""The rows of one side of a join that have had no match yet, and when none can come any more."""

from __future__ import annotations

import numpy as np

from clonos_py.columns.growing import GrowingArray
from clonos_py.columns.views import Bools, Ints
from clonos_py.operators.due_queue import DueQueue


class Unmatched:
    """Rows by number, in the order in which they were appended. A row is *settled* once it has had a match, or was
    found to have none."""

    def __init__(self) -> None:
        self._settled = GrowingArray(bool)
        self._due = DueQueue()

    @property
    def settled(self) -> Bools:
        """By row: whether it is settled."""
        return self._settled.values

    def append(self, settled: Bools, last_match: Ints | None) -> None:
        """Adds rows. ``last_match``: the latest event time at which each may still get a match; None if that is never
        asked."""
        first = len(self.settled)
        self._settled.append(settled)
        if last_match is not None:
            unsettled = np.flatnonzero(~settled)
            self._due.push(last_match[unsettled], first + unsettled)

    def settle(self, rows: Ints) -> None:
        """These rows have a match."""
        self.settled[rows] = True

    def settled_first(self, rows: Ints) -> Ints:
        """These rows have a match. Returns those for which it is the first one, once each, in their order."""
        found = np.unique(rows[~self.settled[rows]])
        self.settled[found] = True
        return found

    def pop(self, watermark: int) -> Ints:
        """The rows that got no match and can get none from rows that are not before ``watermark``. They are settled."""
        return self.settled_first(self._due.pop(watermark - 1))

    def load(self, settled: Bools, last_match: Ints | None) -> None:
        """Replaces all rows."""
        self._settled, self._due = GrowingArray(bool), DueQueue()
        self.append(settled, last_match)
