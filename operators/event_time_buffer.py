"""Rows that wait for the watermark, to be given on in the order of event time; of equal times, in that of arrival."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from clonos_py.columns.views import Ints, concat, fixed
from clonos_py.model.state import Chunk
from clonos_py.model.times import MAX_TIME
from clonos_py.operators.keyed_chunks import with_groups


class _Piece(NamedTuple):
    """Rows in the order of arrival. ``sealed`` ones were part of a snapshot and keep their chunk."""

    chunk: Chunk
    sealed: bool


class EventTimeBuffer:
    """Batches that are wholly due or not due at all are not copied."""

    def __init__(self, time: str, keys: Sequence[str], groups: int) -> None:
        self._time = time
        self._keys = keys
        self._groups = groups
        self._pieces: list[_Piece] = []

    def add(self, rows: pa.RecordBatch) -> None:
        if rows.num_rows:
            self._pieces.append(_Piece(Chunk(with_groups(rows, self._keys, self._groups)), sealed=False))

    def take(self, watermark: int) -> pa.RecordBatch | None:
        """Removes and returns the rows before ``watermark`` (at MAX_TIME all), sorted; None if there are none."""
        due: list[pa.RecordBatch] = []
        rest: list[_Piece] = []
        for piece in self._pieces:
            rows = piece.chunk.rows
            early = self._times(rows) < watermark
            if watermark == MAX_TIME or early.all():
                due.append(rows)
            elif early.any():
                due.append(rows.take(np.flatnonzero(early)))
                rest.append(_Piece(Chunk(rows.take(np.flatnonzero(~early))), sealed=False))
            else:
                rest.append(piece)
        self._pieces = rest
        if not due:
            return None
        whole = concat(due)
        return whole.take(np.argsort(self._times(whole), kind="stable"))

    def chunks(self) -> list[Chunk]:
        """All waiting rows. What is not sealed yet becomes so, neighbours as one chunk."""
        pieces: list[_Piece] = []
        for sealed, run in itertools.groupby(self._pieces, key=lambda piece: piece.sealed):
            if sealed:
                pieces.extend(run)
            else:
                pieces.append(_Piece(Chunk(concat([piece.chunk.rows for piece in run])), sealed=True))
        self._pieces = pieces
        return [piece.chunk for piece in pieces]

    def load(self, chunks: Iterable[Chunk]) -> None:
        self._pieces.extend(_Piece(chunk, sealed=True) for chunk in chunks)

    def _times(self, rows: pa.RecordBatch) -> Ints:
        times: Ints = fixed(rows.column(self._time))
        return times
