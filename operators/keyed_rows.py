"""Keyed state rows: immutable chunks, a mask of live rows, and an index of key hashes.

A row is updated by removing it and appending the new version. So the cost of a batch depends on the keys that it
touches, and not on how often they have changed. Dead rows are removed when they outnumber the live ones, and earlier
where the oldest are dead, as in a state that expires. The time of this compaction and the order of rows depend on the
rows alone, so a restored task continues exactly as its predecessor would have. A null key is a key (D17).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from clonos_py.columns.gathering import ChunkColumns
from clonos_py.columns.hash_index import new_index
from clonos_py.columns.keys import hash_rows
from clonos_py.columns.matching import equal_rows
from clonos_py.columns.ordering import places
from clonos_py.columns.views import Bools, Ints, concat
from clonos_py.model.state import Chunk, OperatorState, unchanged
from clonos_py.operators.keyed_chunks import is_large, rows_at, starts_of
from clonos_py.operators.row_flags import flagged, owned_flagged, packed

ROWS_TABLE = "rows"
_DEAD_ROWS = 16_384
_OLDEST_SHARE = 16
"""The oldest rows are removed once more than this part of all rows is dead there."""
_CHUNK_ROWS = 65_536


class KeyedRows:
    """Rows of one schema, numbered in the order in which they were appended. ``table``: their name in the operator's
    state, which may have several tables. ``also_by``: the columns of a second index."""

    def __init__(self, keys: Sequence[str], table: str = ROWS_TABLE, also_by: Sequence[str] | None = None) -> None:
        self._keys = tuple(keys)
        self._every_key = (self._keys,) if also_by is None else (self._keys, tuple(also_by))
        self._table = table
        self.clear()

    def clear(self) -> None:
        self._chunks: list[Chunk] = []
        self._columns = ChunkColumns()
        self._indexes = {keys: new_index() for keys in self._every_key}
        self._live = np.ones(0, bool)
        self.rows = 0
        self._dead = 0

    def append(self, rows: pa.RecordBatch) -> Ints:
        """Adds rows, which carry their key group. Returns their numbers."""
        numbers = np.arange(self.rows, self.rows + rows.num_rows)
        self.rows += rows.num_rows
        if self.rows > len(self._live):
            self._live = np.append(self._live, np.ones(self.rows, bool))
        self._add_to_index(rows)
        self._append_chunk(Chunk(rows))
        return numbers

    def find(
        self, rows: pa.RecordBatch, by: tuple[str, ...] | None = None, named: Sequence[str] | None = None
    ) -> tuple[Ints, Ints]:
        """Pairs (position in ``rows``, number) of live rows with the same key, or with the same values in ``by``, the
        columns of the second index. ``named``: the names of these columns in ``rows``, if they differ."""
        keys = self._keys if by is None else by
        named = keys if named is None else named
        positions, numbers = self._indexes[keys].probe(hash_rows(rows, named), self._live if self._dead else None)
        if len(numbers) == 0 or not keys:
            return positions, numbers
        found = self.take(numbers, keys)
        equal = equal_rows(rows, named, positions, found, keys, np.arange(len(numbers)), nulls_equal=True)
        return positions[equal], numbers[equal]

    def take(self, numbers: Ints, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """The rows with these numbers, with all columns or the named ones. Requires that a row was appended before."""
        return rows_at(self._chunks, starts_of(self._chunks), numbers, columns, self._columns)

    def distinct(self, numbers: Ints) -> Ints:
        """The distinct numbers, sorted."""
        if len(numbers) < 2 or (numbers[1:] > numbers[:-1]).all():
            return numbers
        named = np.zeros(self.rows, bool)
        named[numbers] = True
        return np.flatnonzero(named)

    def live_numbers(self, numbers: Ints) -> Ints:
        """The numbers of the rows that are still live."""
        return numbers[self.are_live(numbers)]

    def are_live(self, numbers: Ints) -> Bools:
        """Whether each of these rows is still live."""
        return self._live[numbers]

    def remove(self, numbers: Ints) -> None:
        """Removes live rows. ``numbers`` must be distinct."""
        self._live[numbers] = False
        self._dead += len(numbers)

    def compact(self) -> Bools | None:
        """Removes dead rows if there are too many, or if the oldest rows are dead. Then rows have new numbers, in the
        same order: returns which of the former rows are still there."""
        if self._dead > max(self.rows - self._dead, _DEAD_ROWS):
            return self._compact_all()
        if self._dead > self._oldest_max:
            first_live = int(self._live.argmax())
            if first_live > self._oldest_max:
                return self._drop_first(int(starts_of(self._chunks).searchsorted(first_live, side="right")) - 1)
        return None

    @property
    def _oldest_max(self) -> int:
        """More dead rows at the start are removed."""
        return max(self.rows // _OLDEST_SHARE, _DEAD_ROWS)

    def _compact_all(self) -> Bools:
        """Chunks without dead rows stay as they are. The others are replaced one by one, so that there are not twice as
        many meanwhile."""
        live, masks = self._live[: self.rows], self._masks()
        self._columns.forget()
        for index in self._indexes.values():
            index.compact(live)
        former, self._chunks = self._chunks[::-1], []
        self.rows -= self._dead
        self._live, self._dead = np.ones(self.rows, bool), 0
        for mask in masks:
            chunk = former.pop()
            self._append_chunk(chunk if mask.all() else Chunk(chunk.rows.filter(pa.array(mask))))
        return live

    def _drop_first(self, chunks: int) -> Bools | None:
        """Removes this many chunks from the start. Their rows are dead."""
        rows = int(starts_of(self._chunks[:chunks])[-1])
        if not rows:
            return None
        self._columns.forget()
        for index in self._indexes.values():
            index.drop_first(rows)
        kept = np.ones(self.rows, bool)
        kept[:rows] = False
        self._chunks, self._live = self._chunks[chunks:], self._live[rows:].copy()
        self.rows, self._dead = self.rows - rows, self._dead - rows
        return kept

    def all(self) -> list[pa.RecordBatch]:
        """The live rows, chunk by chunk, in the order of their numbers."""
        parts = [chunk.rows.filter(pa.array(mask)) for chunk, mask in zip(self._chunks, self._masks(), strict=True)]
        return [part for part in parts if part.num_rows]

    def places(self, numbers: Ints, columns: Sequence[str]) -> list[Ints]:
        """By column: integers that sort as the column's values in these rows, nulls last."""
        rows = self.take(numbers, columns)
        return [places(rows.column(column), descending=False) for column in columns]

    @property
    def live_row_count(self) -> int:
        """The number of live rows."""
        return self.rows - self._dead

    def all_numbers(self) -> Ints:
        return np.flatnonzero(self._live[: self.rows])

    def snapshot(self, values: Mapping[str, Any]) -> OperatorState:
        """All chunks, and in addition to ``values`` a bit mask of the dead rows."""
        dead = packed(~self._live[: self.rows])
        return OperatorState({self._table: list(self._chunks)}, dict(values) | {_dead_value(self._table): dead})

    def restore(self, parts: Sequence[OperatorState], groups: range) -> None:
        """Replaces all rows by those of ``parts`` that belong to ``groups``. Chunks that are already loaded are reused:
        a standby loads every checkpoint."""
        chunks: list[Chunk] = []
        dead: list[Bools] = []
        for part in parts:
            for chunk, chunk_dead in flagged(part, self._table, _dead_value(self._table)):
                if (kept := owned_flagged(chunk, chunk_dead, groups)) is not None:
                    chunks.append(kept[0])
                    dead.append(kept[1])
        self._replace(chunks, ~np.concatenate([np.zeros(0, bool), *dead]))

    def _replace(self, chunks: Sequence[Chunk], live: Bools) -> None:
        # the task whose snapshot this is may have dropped the chunks before the first one
        self._drop_first(next((place for place, own in enumerate(self._chunks) if chunks and own is chunks[0]), 0))
        self._columns.forget()
        same = unchanged(self._chunks, chunks)
        kept = int(starts_of(chunks)[same])
        if (live[:kept] & ~self._live[:kept]).any():
            same = kept = 0  # after a rollback, rows are live again that the index no longer has
        for index in self._indexes.values():
            index.truncate(kept)
        self._chunks, self.rows = list(chunks), len(live)
        self._live, self._dead = live, len(live) - int(np.count_nonzero(live))
        for chunk in chunks[same:]:
            self._add_to_index(chunk.rows)

    def _add_to_index(self, rows: pa.RecordBatch) -> None:
        for keys, index in self._indexes.items():
            index.append(hash_rows(rows, keys), self._live if self._dead else None)

    def _append_chunk(self, chunk: Chunk) -> None:
        """Appends a chunk. Small chunks of similar size are merged; large ones are not, since they may be stored
        already."""
        if chunk.rows.num_rows == 0:
            return
        while self._chunks and self._joins(self._chunks[-1], chunk):
            chunk = Chunk(concat([self._chunks.pop().rows, chunk.rows]))
        self._chunks.append(chunk)

    def _joins(self, last: Chunk, new: Chunk) -> bool:
        return last.rows.num_rows < min(2 * new.rows.num_rows, _CHUNK_ROWS) and not is_large(last)

    def _masks(self) -> list[Bools]:
        bounds = np.cumsum([chunk.rows.num_rows for chunk in self._chunks])[:-1]
        return np.split(self._live[: self.rows], bounds) if self._chunks else []


def live_rows(part: OperatorState, table: str) -> list[pa.RecordBatch]:
    """The rows of a table in a snapshot without those that are dead. All rows of a table that has no mask of these."""
    if _dead_value(table) not in part.values:
        return [chunk.rows for chunk in part.tables.get(table, ())]
    return [chunk.rows.filter(pa.array(~dead)) for chunk, dead in flagged(part, table, _dead_value(table))]


def _dead_value(table: str) -> str:
    return f"{table}.dead"
