"""A queue of the timers of all keys, in the order in which they fire: by time, then key, then name."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping

from clonos_py.operators.process_state import Cell

_SLACK = 1_024


class TimerQueue:
    """The firing order of timers. The times themselves are stored in the keys' cells. Moving a timer leaves a stale
    entry, which is skipped later."""

    def __init__(self, cells: Mapping[bytes, Cell], names: Iterable[str]) -> None:
        self._cells = cells
        self._names = frozenset(names)
        self._heap: list[tuple[int, bytes, str]] = []
        self._live = 0
        self._rebuild()

    def set(self, cell: Cell, name: str, at: int) -> None:
        """Sets or moves a timer."""
        before = cell.timers.get(name)
        if before == at:
            return
        self._live += before is None
        cell.timers[name] = at
        heapq.heappush(self._heap, (at, cell.key, name))
        if len(self._heap) > 2 * self._live + _SLACK:
            self._rebuild()

    def clear(self, cell: Cell, name: str) -> None:
        self._live -= cell.timers.pop(name, None) is not None

    def next_at(self) -> int | None:
        """When the next timer fires."""
        while self._heap:
            at, key, name = self._heap[0]
            cell = self._cells.get(key)
            if cell is not None and cell.timers.get(name) == at:
                return at
            heapq.heappop(self._heap)
        return None

    def pop(self, up_to: int) -> tuple[int, Cell, str] | None:
        """Clears and returns the next timer that is due at ``up_to``; None if there is none."""
        at = self.next_at()
        if at is None or at > up_to:
            return None
        _, key, name = heapq.heappop(self._heap)
        cell = self._cells[key]
        self.clear(cell, name)
        return at, cell, name

    def _rebuild(self) -> None:
        entries = (
            (at, cell.key, name)
            for cell in self._cells.values()
            for name, at in cell.timers.items()
            if name in self._names
        )
        self._heap = sorted(entries)
        self._live = len(self._heap)
