"""Partial results of windows, kept by pane: the longest span of time that belongs wholly to each window it touches.

A tumbling window is one pane; hopping windows share theirs, so a row is stored once however many windows it is in. A
pane is a list of immutable chunks. It is merged into fewer ones when it has doubled since, or has become many small
ones: a row is merged a logarithmic number of times, and a snapshot names the chunks of earlier snapshots. When that
happens depends on the chunks' sizes alone, so that a restored task goes on exactly as its predecessor would have.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import gcd
from typing import Any

import pyarrow as pa

from clonos_py.columns.views import Ints, concat, fixed
from clonos_py.model.state import Chunk
from clonos_py.model.times import MAX_TIME, MIN_TIME
from clonos_py.model.windows import Hopping, Tumbling
from clonos_py.operators.aggregation import Partials
from clonos_py.operators.keyed_chunks import owned_part

PANE_COLUMN = "_pane"
"""int64 column of every partial batch of a window: when its pane begins, in microseconds."""

_DOUBLING_ROWS = 16_384
_MANY_CHUNKS = 32


class Panes:
    """The chunks of all panes of one operator instance."""

    def __init__(self, partials: Partials) -> None:
        self._partials = partials
        self._chunks: dict[int, list[Chunk]] = {}

    def starts(self) -> list[int]:
        return sorted(self._chunks)

    def append(self, start: int, partial: pa.RecordBatch) -> None:
        """Adds partial rows with their key group to the pane that begins at ``start``."""
        chunks = self._chunks.setdefault(start, [])
        chunks.append(Chunk(partial))
        merged_from = _due(chunks)
        if merged_from < len(chunks) - 1:
            chunks[merged_from:] = [Chunk(self.merged([chunk.rows for chunk in chunks[merged_from:]]))]

    def rows(self, starts: Iterable[int]) -> list[pa.RecordBatch]:
        """The partial rows of these panes, in their order."""
        return [chunk.rows for start in starts for chunk in self._chunks.get(start, ())]

    def merged(self, batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        """One partial row per key over partial batches, of which there is at least one."""
        return self._partials.merge_by_key(concat(batches))

    def drop_before(self, start: int) -> None:
        for pane in [pane for pane in self._chunks if pane < start]:
            del self._chunks[pane]

    def snapshot(self) -> list[Chunk]:
        return [chunk for start in self.starts() for chunk in self._chunks[start]]

    def restore(self, chunks: Iterable[Chunk], groups: range) -> None:
        """Replaces everything by those rows of ``chunks`` that belong to ``groups``."""
        self._chunks = {}
        for chunk in chunks:
            kept = owned_part(chunk, groups)
            if kept is not None:
                self._chunks.setdefault(fixed(kept.rows.column(PANE_COLUMN))[0].item(), []).append(kept)


def _due(chunks: Sequence[Chunk]) -> int:
    """From which chunk on the list is to be merged; the last one means not at all."""
    sizes = [chunk.rows.num_rows for chunk in chunks]
    if sum(sizes[1:]) >= max(sizes[0], _DOUBLING_ROWS):
        return 0
    first = len(sizes) - 1
    if len(sizes) <= _MANY_CHUNKS:
        return first
    total = sizes[first]
    while first > 0 and sizes[first - 1] <= 2 * total:
        first -= 1
        total += sizes[first]
    return min(first, len(sizes) - 2)


class PaneClock:
    """Arithmetic of tumbling and hopping windows over panes. All times are microseconds."""

    def __init__(self, window: Tumbling | Hopping, lateness_us: int = 0) -> None:
        self.size = window.size_us
        self.slide = window.slide_us if isinstance(window, Hopping) else window.size_us
        self.pane = gcd(self.size, self.slide)
        self._lateness = lateness_us

    def assign(self, times: Ints) -> Ints:
        """The pane of each time."""
        return times // self.pane * self.pane

    def outside(self, panes: Ints) -> Any:
        """Panes that lie between windows, when windows are shorter than their slide; None where there are none."""
        if self.slide <= self.size:
            return None
        return panes % self.slide >= self.size

    def windows(self, pane: int) -> range:
        """The starts of the windows that a pane belongs to."""
        last = pane // self.slide * self.slide
        first = -((self.size - self.pane - pane) // self.slide) * self.slide
        return range(first, last + 1, self.slide)

    def panes(self, window: int) -> range:
        """The panes of the window that starts here."""
        return range(window, window + self.size, self.pane)

    def late_before(self, watermark: int) -> int:
        """Panes that begin before this belong to no window that may still change."""
        if watermark == MAX_TIME:
            return MAX_TIME
        start = ((watermark - self._lateness - self.size) // self.slide + 1) * self.slide
        return max(start, MIN_TIME)

    def changes_until(self, window: int) -> int:
        """The watermark at which the window that starts here is dropped."""
        return window + self.size + self._lateness
