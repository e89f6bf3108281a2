"""Merges the panes of hopping windows without merging each pane again for every window that contains it.

Panes are divided into blocks as long as a window, so every window is the end of one block and the beginning of the next
(van Herk's and Gil and Werman's scheme). The ends of a block are merged once, backwards, when the block is complete.
Its beginnings grow by one pane per window. So a window costs about three merges, regardless of its number of panes.
This pays off if panes share keys; otherwise all panes are merged at once. A cumulative window is such a beginning. All
cached results except ``last_rows`` follow from the panes alone. Adding a row to an old pane invalidates the results
that depend on it.
"""

from __future__ import annotations

import pyarrow as pa

from clonos_py.operators.panes import PaneClock, Panes

_WORTHWHILE_SHARING = 4


class SlidingMerges:
    """Merges windows from ``panes``, and caches partial merges."""

    def __init__(self, panes: Panes, clock: PaneClock) -> None:
        self._panes = panes
        self._clock = clock
        self._ends: dict[int, pa.RecordBatch] = {}
        self._beginning: tuple[int, int, pa.RecordBatch] | None = None
        self.last_rows = 0
        """The number of rows of the last merged window. It is state, since it decides how the next window is merged,
        and thus the order in which floats are added."""

    def merged(self, window: int) -> pa.RecordBatch:
        """One partial row per key of a window, which has at least one row."""
        if self._clock.grows:
            found = self._beginning_of_block(self._clock.start(window), window + self._clock.size)
            assert found is not None
            return found
        parts = self._panes.rows(self._clock.panes(window))
        if sum(part.num_rows for part in parts) >= _WORTHWHILE_SHARING * self.last_rows > 0:
            parts = self._halves(window)
        merged = self._panes.merged(parts)
        self.last_rows = merged.num_rows
        return merged

    def changed(self, pane: int) -> None:
        """Invalidates cached results after rows were added to a pane."""
        block = pane // self._clock.size * self._clock.size
        for start in [start for start in self._ends if block <= start <= pane]:
            del self._ends[start]
        if self._beginning is not None and self._beginning[0] <= pane < self._beginning[1]:
            self._beginning = None

    def drop_before(self, start: int) -> None:
        for pane in [pane for pane in self._ends if pane < start]:
            del self._ends[pane]

    def restore(self, last_rows: int) -> None:
        self._ends, self._beginning, self.last_rows = {}, None, last_rows

    def _halves(self, window: int) -> list[pa.RecordBatch]:
        """The end of one block and the beginning of the next, which together are the window."""
        block = window // self._clock.size * self._clock.size
        parts = [self._end_of_block(block, window)]
        if window > block:
            parts.append(self._beginning_of_block(block + self._clock.size, window + self._clock.size))
        return [part for part in parts if part is not None]

    def _end_of_block(self, block: int, start: int) -> pa.RecordBatch | None:
        """Merges the panes from ``start`` to the end of the block, backwards. Caches all shorter ends."""
        known: pa.RecordBatch | None = None
        for pane in reversed(range(start, block + self._clock.size, self._clock.pane)):
            if pane in self._ends:
                known = self._ends[pane]
                continue
            rows = self._panes.rows([pane])
            if rows:
                known = self._panes.merged(rows if known is None else [*rows, known])
            if known is not None:
                self._ends[pane] = known
        return known

    def _beginning_of_block(self, block: int, until: int) -> pa.RecordBatch | None:
        """Merges the panes from the beginning of the block to ``until``."""
        start, known = block, None
        if self._beginning is not None and self._beginning[0] == block and self._beginning[1] <= until:
            _, start, known = self._beginning
        rows = self._panes.rows(range(start, until, self._clock.pane))
        if rows:
            known = self._panes.merged(rows if known is None else [known, *rows])
        if known is not None:
            self._beginning = (block, until, known)
        return known
