"""Rows that wait for the watermark, to be given on in the order of event time; of equal times, in that of arrival."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from clonos_py.columns.views import Ints, fixed
from clonos_py.model.state import Chunk
from clonos_py.model.times import MAX_TIME
from clonos_py.operators.keyed_chunks import concat, with_groups


class EventTimeBuffer:
    """Batches that are wholly due or not due at all are not copied."""

    def __init__(self, time: str, keys: Sequence[str], groups: int) -> None:
        self._time = time
        self._keys = keys
        self._groups = groups
        self._stored: list[Chunk] = []
        self._fresh: list[pa.RecordBatch] = []

    def add(self, rows: pa.RecordBatch) -> None:
        if rows.num_rows:
            self._fresh.append(with_groups(rows, self._keys, self._groups))

    def take(self, watermark: int) -> pa.RecordBatch | None:
        """Removes and returns the rows before ``watermark`` (at MAX_TIME all), sorted; None if there are none."""
        due: list[pa.RecordBatch] = []
        stored: list[Chunk] = []
        rest: list[pa.RecordBatch] = []
        for chunk in self._stored:
            early, later = self._split(chunk.rows, watermark)
            due += early
            if early:
                rest += later
            else:
                stored.append(chunk)
        for rows in self._fresh:
            early, later = self._split(rows, watermark)
            due += early
            rest += later
        self._stored, self._fresh = stored, rest
        if not due:
            return None
        rows = concat(due)
        return rows.take(np.argsort(self._times(rows), kind="stable"))

    def chunks(self) -> list[Chunk]:
        """All waiting rows; those that came since the last call have become one chunk."""
        if self._fresh:
            self._stored.append(Chunk(concat(self._fresh)))
            self._fresh = []
        return list(self._stored)

    def load(self, chunks: Iterable[Chunk]) -> None:
        self._stored.extend(chunks)

    def _split(self, rows: pa.RecordBatch, watermark: int) -> tuple[list[pa.RecordBatch], list[pa.RecordBatch]]:
        due = self._times(rows) < watermark
        if watermark == MAX_TIME or due.all():
            return [rows], []
        if not due.any():
            return [], [rows]
        return [rows.take(np.flatnonzero(due))], [rows.take(np.flatnonzero(~due))]

    def _times(self, rows: pa.RecordBatch) -> Ints:
        times: Ints = fixed(rows.column(self._time))
        return times
