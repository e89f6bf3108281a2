"""Reads like those of a source that decodes many rows at once: slices of batches whose other rows always differ.

A slice of a narrow column, such as int32, may have other bytes than a batch of equal rows.
"""

from __future__ import annotations

import pyarrow as pa

from clonos_py.columns.views import concat


def among_others(rows: pa.RecordBatch, read: int) -> pa.RecordBatch:
    """The same rows as a slice; ``read``: the number of the read."""
    others = rows.take(pa.array([read % rows.num_rows] * (read % 5), pa.int64())) if rows.num_rows else rows
    return concat([others, rows, others]).slice(others.num_rows, rows.num_rows)
