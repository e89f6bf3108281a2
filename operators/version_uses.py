"""Which versions of a temporal join a left row has had, and when no left row can have them any more."""

from __future__ import annotations

import numpy as np

from clonos_py.columns.growing import GrowingArray
from clonos_py.columns.views import Bools, Ints
from clonos_py.operators.due_queue import DueQueue


class VersionUses:
    """Versions by number, in the order in which they were appended. ``oldest``: by how many microseconds a version may
    be older than a left row at most."""

    def __init__(self, oldest: int | None) -> None:
        self._oldest = oldest
        self.load(np.zeros(0, bool), np.zeros(0, np.int64), np.zeros(0, np.int64))

    @property
    def used(self) -> Bools:
        """By version: whether a left row has had it."""
        return self._used.values

    def load(self, used: Bools, numbers: Ints, since: Ints) -> None:
        """Replaces all. ``numbers`` and ``since``: the versions that are not removed, and their times."""
        self._used = GrowingArray(bool)
        self._used.append(used)
        self._begins, self._ends = DueQueue(), DueQueue()
        self._push(numbers, since)

    def append(self, since: Ints) -> None:
        """Adds versions, by their times."""
        first = len(self.used)
        self._used.append(np.zeros(len(since), bool))
        self._push(np.arange(first, first + len(since)), since)

    def use(self, numbers: Ints) -> None:
        """Left rows have had these versions."""
        self.used[numbers] = True

    def begun(self, watermark: int) -> Ints:
        """The versions that are valid from before ``watermark`` on, and were not returned before."""
        return self._begins.pop(watermark - 1)

    def too_old(self, watermark: int) -> Ints:
        """The versions that are too old for a left row that is not before ``watermark``."""
        return self._ends.pop(watermark - 1)

    def _push(self, numbers: Ints, since: Ints) -> None:
        self._begins.push(since, numbers)
        if self._oldest is not None:
            self._ends.push(since + self._oldest, numbers)
