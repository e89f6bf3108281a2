"""Chunks of keyed state: rows with their key group, by which instances own them (D15)."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from clonos_py.columns.gathering import ChunkColumns, gathered
from clonos_py.columns.keys import groups_of, hash_rows
from clonos_py.columns.views import Ints, Words, fixed
from clonos_py.model.state import GROUP_COLUMN, Chunk, OperatorState

LARGE_BYTES = 2 << 20
_FAN_IN = 8
_BATCH_ROWS = 65_536


def is_large(chunk: Chunk) -> bool:
    """Whether a chunk is too large to merge: merging would not speed up reads, but copy and store it again."""
    size_bytes: int = chunk.rows.nbytes
    return size_bytes >= LARGE_BYTES


def mergeable(chunks: Sequence[Chunk]) -> int:
    """How many of the last chunks to merge: those that are not large, and in a size class no higher than that of the
    very last one, once there are eight. 0 until then."""
    if not chunks:
        return 0
    limit = _size_class(chunks[-1])
    alike = list(itertools.takewhile(lambda chunk: _size_class(chunk) <= limit, reversed(chunks)))
    if len(alike) < _FAN_IN:
        return 0
    count = sum(1 for _ in itertools.takewhile(lambda chunk: not is_large(chunk), alike))
    return count if count >= _FAN_IN else 0


def _size_class(chunk: Chunk) -> int:
    """The size class of a chunk. Each class has eight times as many rows as the previous one."""
    return chunk.rows.num_rows.bit_length() // 3


def with_groups(rows: pa.RecordBatch, keys: Sequence[str], groups: int) -> pa.RecordBatch:
    """Adds the column ``GROUP_COLUMN``: the key group of the row's ``keys``, out of ``groups``."""
    return grouped(rows, hash_rows(rows, keys), groups)


def grouped(rows: pa.RecordBatch, hashes: Words, groups: int) -> pa.RecordBatch:
    """As ``with_groups``, from the hashes of the keys."""
    return rows.append_column(pa.field(GROUP_COLUMN, pa.int32()), pa.array(groups_of(hashes, groups)))


def grouped_schema(rows: pa.Schema, names: Sequence[str] | None = None) -> pa.Schema:
    """The columns of ``rows``, or those with these names, and ``GROUP_COLUMN``."""
    fields: list[Any] = [rows.field(name) for name in (rows.names if names is None else names)]
    return pa.schema([*fields, pa.field(GROUP_COLUMN, pa.int32())])


def owned_part(chunk: Chunk, groups: range) -> Chunk | None:
    """The chunk's rows in ``groups``. The same chunk object if these are all rows, so that it is not stored again; None
    if there are none."""
    if chunk.of_others:
        return None
    group = fixed(chunk.rows.column(GROUP_COLUMN))
    own = (group >= groups.start) & (group < groups.stop)
    if own.all():
        return chunk if chunk.rows.num_rows else None
    return Chunk(chunk.rows.take(np.flatnonzero(own))) if own.any() else None


def stored(parts: Iterable[OperatorState], table: str) -> Iterator[Chunk]:
    """The chunks of a table in all parts of a snapshot."""
    return (chunk for part in parts for chunk in part.tables.get(table, ()))


def owned(chunks: Iterable[Chunk], groups: range) -> Iterator[Chunk]:
    """The rows of each chunk that are in ``groups``."""
    for chunk in chunks:
        if (part := owned_part(chunk, groups)) is not None:
            yield part


def starts_of(chunks: Sequence[Chunk]) -> Ints:
    """The number of each chunk's first row, followed by the total number of rows."""
    sizes = [chunk.rows.num_rows for chunk in chunks]
    return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])


def rows_at(
    chunks: Sequence[Chunk],
    starts: Ints,
    numbers: Ints,
    columns: Sequence[str] | None = None,
    known: ChunkColumns | None = None,
) -> pa.RecordBatch:
    """The rows with these numbers, in this order, from chunks that begin at ``starts``. At least one chunk is
    required. A column that ``columns`` names twice is there once. ``known``: see ``gathered``."""
    return gathered([chunk.rows for chunk in chunks], starts, numbers, columns, known)


def parted(numbers: Ints) -> Iterator[Ints]:
    """Splits row numbers into batches: a text column of all rows might exceed the byte limit of a batch."""
    return (numbers[start : start + _BATCH_ROWS] for start in range(0, len(numbers), _BATCH_ROWS))
