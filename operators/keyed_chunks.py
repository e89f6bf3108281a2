"""Chunks of keyed state: rows with their key group, and which of them an instance owns (D15)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from clonos_py.columns.keys import groups_of, hash_rows
from clonos_py.columns.views import Words, fixed
from clonos_py.model.state import GROUP_COLUMN, Chunk


def with_groups(rows: pa.RecordBatch, keys: Sequence[str], groups: int) -> pa.RecordBatch:
    """The rows with the column ``_group`` of their ``keys``, of ``groups`` key groups in all."""
    return grouped(rows, hash_rows(rows, keys), groups)


def grouped(rows: pa.RecordBatch, hashes: Words, groups: int) -> pa.RecordBatch:
    """The same from the hashes of the keys."""
    return rows.append_column(pa.field(GROUP_COLUMN, pa.int32()), pa.array(groups_of(hashes, groups)))


def owned_part(chunk: Chunk, groups: range) -> Chunk | None:
    """The chunk's rows in ``groups``: the very chunk if these are all, so that it is not written again; None if there
    are none."""
    group = fixed(chunk.rows.column(GROUP_COLUMN))
    mine = (group >= groups.start) & (group < groups.stop)
    if mine.all():
        return chunk if chunk.rows.num_rows else None
    return Chunk(chunk.rows.take(np.flatnonzero(mine))) if mine.any() else None


def owned(chunks: Iterable[Chunk], groups: range) -> Iterator[Chunk]:
    """The rows in ``groups``, chunk by chunk."""
    for chunk in chunks:
        if (part := owned_part(chunk, groups)) is not None:
            yield part
