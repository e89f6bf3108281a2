"""Buffers rows until the watermark, and returns them in the order of event time, then of arrival."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from clonos_py.columns.ordering import stable_order
from clonos_py.columns.views import Ints, concat, fixed
from clonos_py.model.state import Chunk
from clonos_py.model.times import MAX_TIME
from clonos_py.operators.keyed_chunks import with_groups


class _Piece(NamedTuple):
    """Buffered rows, in the order of arrival or, once some of them were due, of event time. ``ordered``: the number of
    sorted rows that the slice keeps in memory; 0 if not sorted. A ``sealed`` piece was part of a snapshot and keeps its
    chunk."""

    chunk: Chunk
    least: int
    sealed: bool = False
    ordered: int = 0


class EventTimeBuffer:
    """The buffer. It skips batches in which no row is due, and sorts a batch that is partly due once."""

    def __init__(self, time: str, keys: Sequence[str], groups: int) -> None:
        self._time = time
        self._keys = keys
        self._groups = groups
        self._pieces: list[_Piece] = []

    def add(self, rows: pa.RecordBatch) -> None:
        if rows.num_rows:
            self._pieces.append(self._piece(Chunk(with_groups(rows, self._keys, self._groups))))

    def take(self, watermark: int) -> pa.RecordBatch | None:
        """Removes and returns the rows before ``watermark`` (at MAX_TIME all), sorted; None if there are none."""
        due: list[pa.RecordBatch] = []
        rest: list[_Piece] = []
        for piece in self._pieces:
            if piece.least >= watermark < MAX_TIME:
                rest.append(piece)
                continue
            rows = piece.chunk.rows
            if watermark == MAX_TIME or self._times(rows).max() < watermark:
                due.append(rows)
                continue
            rows = rows if piece.ordered else self._ordered(rows)
            count = int(np.searchsorted(self._times(rows), watermark))
            due.append(rows.slice(0, count))
            rest.append(self._late_part(rows, count, piece.ordered or rows.num_rows))
        self._pieces = rest
        if not due:
            return None
        return self._ordered(concat(due))

    def chunks(self) -> list[Chunk]:
        """All buffered rows, for a snapshot. Seals the unsealed pieces, adjacent ones as one chunk."""
        pieces: list[_Piece] = []
        for sealed, neighbours in itertools.groupby(self._pieces, key=lambda piece: piece.sealed):
            run = list(neighbours)
            if sealed or len(run) == 1:
                pieces.extend(piece._replace(sealed=True) for piece in run)
            else:
                pieces.append(self._piece(Chunk(concat([piece.chunk.rows for piece in run])), sealed=True))
        self._pieces = pieces
        return [piece.chunk for piece in pieces]

    def load(self, chunks: Iterable[Chunk]) -> None:
        """Replaces all rows by those of a snapshot."""
        self._pieces = [self._piece(chunk, sealed=True) for chunk in chunks]

    def _late_part(self, rows: pa.RecordBatch, start: int, held: int) -> _Piece:
        """The rest of sorted rows. It is copied if it is less than half of the rows that the slice keeps in memory."""
        late = rows.slice(start)
        if 2 * late.num_rows < held:
            late, held = late.take(np.arange(late.num_rows)), late.num_rows
        return self._piece(Chunk(late), ordered=held)

    def _piece(self, chunk: Chunk, sealed: bool = False, ordered: int = 0) -> _Piece:
        return _Piece(chunk, int(self._times(chunk.rows).min()), sealed, ordered)

    def _ordered(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        return rows.take(stable_order(self._times(rows)))

    def _times(self, rows: pa.RecordBatch) -> Ints:
        times: Ints = fixed(rows.column(self._time))
        return times
