"""The rows that one side of a join has received, by key: immutable segments and a rebuildable index (D15).

Rows are numbered in the order of arrival. Small segments are merged eight at a time until they are large. So a row is
copied a few times, and a snapshot writes little more than the new rows. Stored segments that were not merged since are
only referenced.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from clonos_py.columns.gathering import ChunkColumns
from clonos_py.columns.hash_index import new_index
from clonos_py.columns.keys import hash_rows
from clonos_py.columns.views import Bools, Ints, Words, concat, fixed
from clonos_py.model.state import Chunk, unchanged
from clonos_py.operators.keyed_chunks import mergeable, rows_at, starts_of

_SMALL_ROWS = 1_024
"""New rows are added to a last segment of fewer rows: copying it costs less than probing one more segment."""


class History:
    """Rows of one schema, looked up by the hash of ``keys``."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._keys = keys
        self._segments: list[Chunk] = []
        self._starts: Ints = np.zeros(1, np.int64)
        self._columns = ChunkColumns()
        self._index = new_index()
        self._open = False
        """Whether the last segment may grow, since it is in no snapshot yet."""

    @property
    def rows(self) -> int:
        return self._index.rows

    def append(self, rows: pa.RecordBatch, hashes: Words) -> None:
        """Adds rows. ``hashes``: those of their keys."""
        if not rows.num_rows:
            return
        self._index.append(hashes)
        if self._open and self._segments[-1].rows.num_rows < _SMALL_ROWS:
            rows = concat([self._segments.pop().rows, rows])
        self._segments.append(Chunk(rows))
        self._starts = np.append(self._starts[: len(self._segments)], self._index.rows)
        self._open = True
        self._merge()

    def load(self, chunks: Iterable[Chunk]) -> None:
        """Replaces all rows by stored ones. Loaded segments are reused: a standby loads every checkpoint."""
        self._columns.forget()
        stored = list(chunks)
        same = unchanged(self._segments, stored)
        self._index.truncate(int(self._starts[same]))
        del self._segments[same:]
        for chunk in stored[same:]:
            self._index.append(hash_rows(chunk.rows, self._keys))
            self._segments.append(chunk)
        self._starts = starts_of(self._segments)
        self._open = False
        self._merge()

    def chunks(self) -> list[Chunk]:
        """All rows, for a snapshot. Chunks are immutable; those already stored are reused."""
        self._open = False
        return list(self._segments)

    def probe(self, hashes: Words) -> tuple[Ints, Ints]:
        """Candidates: (position in ``hashes``, number of the row), in the order of positions, then of rows."""
        return self._index.probe(hashes)

    def take(self, numbers: Ints, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """The rows with these numbers, in this order, with all columns or the named ones."""
        return rows_at(self._segments, self._starts, numbers, columns, self._columns)

    def expire(self, time: str, before: int) -> Bools | None:
        """Removes rows whose ``time`` is before ``before``, but only from segments of which they are at least half.
        Returns which of the rows are left, in their order; None if all are."""
        keep = np.ones(self.rows, bool)
        segments: list[Chunk] = []
        for start, segment in zip(self._starts.tolist(), self._segments, strict=False):
            live = fixed(segment.rows.column(time)) >= before
            if 2 * np.count_nonzero(live) > len(live):
                segments.append(segment)
                continue
            keep[start : start + len(live)] = live
            if live.any():
                segments.append(Chunk(segment.rows.take(np.flatnonzero(live))))
        if keep.all():
            return None
        self._columns.forget()
        self._segments = segments
        self._starts = starts_of(segments)
        self._index.compact(keep)
        self._open = False
        self._merge()
        return keep

    def _merge(self) -> None:
        while count := mergeable(self._segments):
            merged = Chunk(concat([segment.rows for segment in self._segments[-count:]]))
            self._segments[-count:] = [merged]
            self._starts = starts_of(self._segments)
