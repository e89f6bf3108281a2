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
from clonos_py.model.errors import DAMAGED_REMEDY, UnreadableCheckpointError
from clonos_py.model.hidden import hidden
from clonos_py.model.operators import Extent
from clonos_py.model.state import Chunk
from clonos_py.model.times import MAX_TIME, MIN_TIME
from clonos_py.model.windows import Cumulative, Hopping, InPanes
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

    def chunks(self, start: int) -> list[Chunk]:
        """The chunks of the pane that begins at ``start``."""
        return list(self._chunks[start])

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


class SavedPanes:
    """Panes as they were when each was saved: the footprints of windows in event time (CEC). A pane is saved when it is
    new (G_open), and again when it is the oldest one (G_check). No mark is needed where a pane is dropped (R): the
    watermark decides that."""

    def __init__(self, panes: Panes) -> None:
        self._panes = panes
        self._saved: dict[int, tuple[int, list[Chunk]]] = {}
        """By pane: its position, and its chunks there."""

    def save(self, position: int) -> None:
        present = self._panes.starts()
        self._saved = {start: self._saved.get(start) or (position, self._panes.chunks(start)) for start in present}

    def check(self, position: int, rows: int) -> None:
        """Saves the oldest panes again, as many as have these rows."""
        self._drop()
        for start in sorted(self._saved, key=lambda start: (self._saved[start][0], start)):
            if rows <= 0:
                return
            rows -= _rows_of(self._saved[start][1])
            self._saved[start] = position, self._panes.chunks(start)

    def _drop(self) -> None:
        present = set(self._panes.starts())
        self._saved = {start: found for start, found in self._saved.items() if start in present}

    @property
    def extent(self) -> Extent:
        """Each row is a part: a key in a pane. All of them decide."""
        self._drop()
        rows: dict[int, int] = {}
        for position, chunks in self._saved.values():
            rows[position] = rows.get(position, 0) + _rows_of(chunks)
        positions = sorted(rows)
        records = [rows[at] for at in positions]
        return Extent(positions, records, records)

    def snapshot(self) -> tuple[list[Chunk], list[list[int]]]:
        """The chunks of all saved panes, and of each its start, its position and its number of chunks."""
        log = [[start, position, len(chunks)] for start, (position, chunks) in sorted(self._saved.items())]
        return [chunk for start, *_ in log for chunk in self._saved[start][1]], log

    def restore(self, chunks: Sequence[Chunk], log: Iterable[Sequence[int]]) -> list[Chunk]:
        """Takes what ``snapshot`` returned; returns the chunks of all panes. Raises CheckpointError if some are
        missing."""
        self._saved, at = {}, 0
        for start, position, count in log:
            self._saved[start] = position, list(chunks[at : at + count])
            at += count
        if at != len(chunks):
            raise UnreadableCheckpointError(
                f"a snapshot has {len(chunks)} chunks of windows, its header says {at}: the checkpoint is damaged; "
                f"{DAMAGED_REMEDY}"
            )
        return list(chunks)

    def counts(self, start: int, position: int) -> bool:
        """Whether rows of the event at ``position`` come behind the footprint of their pane."""
        return start not in self._saved or self._saved[start][0] <= position

    def clear(self) -> None:
        self._saved = {}


def _rows_of(chunks: Iterable[Chunk]) -> int:
    return sum(chunk.rows.num_rows for chunk in chunks)


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
    """Arithmetic of windows over panes. All times are microseconds. A window is known by the time ``size`` before its
    end. That is its start, unless windows grow."""

    def __init__(self, window: InPanes, lateness_us: int = 0) -> None:
        self.size = window.size_us
        self.slide = _slide(window)
        self.pane = gcd(self.size, self.slide)
        self.grows = isinstance(window, Cumulative)
        self._starts_every = self.size if self.grows else self.slide
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
        """The windows that contain a pane."""
        if self.grows:
            return range(pane + self.slide - self.size, pane // self.size * self.size + 1, self.slide)
        last = pane // self.slide * self.slide
        first = -((self.size - self.pane - pane) // self.slide) * self.slide
        return range(first, last + 1, self.slide)

    def panes(self, window: int) -> range:
        """The panes of a window."""
        return range(self.start(window), window + self.size, self.pane)

    def start(self, window: int) -> int:
        """The start of a window."""
        return (window + self.size - 1) // self.size * self.size if self.grows else window

    def late_before(self, watermark: int) -> int:
        """The time before which panes are late: they belong to no window that may still change."""
        if watermark == MAX_TIME:
            return MAX_TIME
        start = ((watermark - self._lateness - self.size) // self._starts_every + 1) * self._starts_every
        return max(start, MIN_TIME)

    def late_before_each(self, watermarks: Ints) -> Ints:
        """``late_before`` for each of some watermarks before MAX_TIME."""
        lowest = MIN_TIME + self._lateness + self.size + self._starts_every
        watermarks = np.maximum(watermarks, lowest)
        return ((watermarks - self._lateness - self.size) // self._starts_every + 1) * self._starts_every

    def changes_until(self, window: int) -> int:
        """The watermark at which a window is dropped."""
        return window + self.size + self._lateness


def _slide(window: InPanes) -> int:
    match window:
        case Hopping(slide_us=slide_us):
            return slide_us
        case Cumulative(step_us=step_us):
            return step_us
    return window.size_us
