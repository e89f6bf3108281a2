"""The watermark of an operator that holds rows: each one is held back until all rows before it have left."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from clonos_py.model.times import MIN_TIME


class HeldWatermarks:
    """Watermarks between rows, which are numbered in order."""

    def __init__(self, marks: Iterable[tuple[int, int]] = ()) -> None:
        """``marks``: see ``stored``."""
        self._marks = deque(marks)
        self._released = MIN_TIME

    def add(self, number: int, watermark: int) -> None:
        """The rows with lower numbers have come before this watermark."""
        self._marks.append((number, watermark))

    def released(self, first: int) -> int:
        """The watermark that holds now. ``first``: the lowest number of a row that has not left, or of the next one."""
        while self._marks and self._marks[0][0] <= first:
            self._released = self._marks.popleft()[1]
        return self._released

    @property
    def stored(self) -> list[list[int]]:
        """For a snapshot: the watermarks that are held back."""
        return [list(mark) for mark in self._marks]
