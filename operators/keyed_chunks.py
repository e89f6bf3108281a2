"""Chunks of keyed state: rows with their key group, and which of them an instance owns (D15)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from clonos_py.columns.keys import key_groups
from clonos_py.columns.views import fixed
from clonos_py.model.state import GROUP_COLUMN, Chunk


def with_groups(rows: pa.RecordBatch, keys: Sequence[str], groups: int) -> pa.RecordBatch:
    """The rows with the column ``_group`` of their ``keys``, of ``groups`` key groups in all."""
    return rows.append_column(pa.field(GROUP_COLUMN, pa.int32()), pa.array(key_groups(rows, keys, groups)))


def concat(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """At least one batch as one."""
    if len(batches) == 1:
        return batches[0]
    whole: pa.RecordBatch = pa.concat_batches(batches)  # type: ignore[attr-defined]
    return whole


def owned(chunks: Iterable[Chunk], groups: range) -> Iterator[Chunk]:
    """The rows in ``groups``. A chunk all of whose rows are is given as it is, so that it is not written again."""
    for chunk in chunks:
        group = fixed(chunk.rows.column(GROUP_COLUMN))
        mine = (group >= groups.start) & (group < groups.stop)
        if mine.all():
            if chunk.rows.num_rows:
                yield chunk
        elif mine.any():
            yield Chunk(chunk.rows.take(np.flatnonzero(mine)))
