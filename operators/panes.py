"""Partial results of windows, by pane: the longest time span that lies completely inside every window that it overlaps.

A tumbling window is one pane. Hopping windows share panes, so a row is stored once, regardless of the number of its
windows. A pane is a list of immutable chunks. Chunks are merged when the pane has doubled since the last merge, or when
it has many small chunks. So a row is merged a logarithmic number of times, and a snapshot reuses chunks of earlier
snapshots. Merging depends on the chunks' sizes alone, so a restored task continues exactly as its predecessor would
have.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import gcd
from typing import Any

import numpy as np
import pyarrow as pa

from clonos_py.columns.views import Ints, concat, fixed
from clonos_py.model.hidden import hidden
from clonos_py.model.state import Chunk
from clonos_py.model.times import MAX_TIME, MIN_TIME
from clonos_py.model.windows import Hopping, Tumbling
from clonos_py.operators.aggregation import Partials
from clonos_py.operators.keyed_chunks import owned_part

PANE_COLUMN = hidden("pane")
"""int64 column of every partial batch of a window: the start of its pane, in microseconds."""

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
        """The partial rows of these panes, in the given order."""
        return [chunk.rows for start in starts for chunk in self._chunks.get(start, ())]

    def merged(self, batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        """Merges partial batches, at least one, to one partial row per key."""
        return self._partials.merge_by_key(concat(batches))

    def drop_before(self, start: int) -> None:
        for pane in [pane for pane in self._chunks if pane < start]:
            del self._chunks[pane]

    def snapshot(self) -> list[Chunk]:
        return [chunk for start in self.starts() for chunk in self._chunks[start]]

    def restore(self, chunks: Iterable[Chunk], groups: range) -> None:
        """Replaces all rows by the rows of ``chunks`` that belong to ``groups``."""
        self._chunks = {}
        for chunk in chunks:
            kept = owned_part(chunk, groups)
            if kept is not None:
                self._chunks.setdefault(fixed(kept.rows.column(PANE_COLUMN))[0].item(), []).append(kept)


def _due(chunks: Sequence[Chunk]) -> int:
    """The index from which the chunks should be merged; that of the last chunk means no merge."""
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
        """The start of the pane of each time."""
        return times // self.pane * self.pane

    def outside(self, panes: Ints) -> Any:
        """A mask of the panes that lie between windows, if windows are shorter than their slide; otherwise None."""
        if self.slide <= self.size:
            return None
        return panes % self.slide >= self.size

    def windows(self, pane: int) -> range:
        """The starts of the windows that contain a pane."""
        last = pane // self.slide * self.slide
        first = -((self.size - self.pane - pane) // self.slide) * self.slide
        return range(first, last + 1, self.slide)

    def panes(self, window: int) -> range:
        """The panes of the window that starts at ``window``."""
        return range(window, window + self.size, self.pane)

    def late_before(self, watermark: int) -> int:
        """The time before which panes are late: they belong to no window that may still change."""
        if watermark == MAX_TIME:
            return MAX_TIME
        start = ((watermark - self._lateness - self.size) // self.slide + 1) * self.slide
        return max(start, MIN_TIME)

    def late_before_each(self, watermarks: Ints) -> Ints:
        """``late_before`` for each of some watermarks before MAX_TIME."""
        lowest = MIN_TIME + self._lateness + self.size + self.slide
        watermarks = np.maximum(watermarks, lowest)
        return ((watermarks - self._lateness - self.size) // self.slide + 1) * self.slide

    def changes_until(self, window: int) -> int:
        """The watermark at which the window that starts at ``window`` is dropped."""
        return window + self.size + self._lateness
