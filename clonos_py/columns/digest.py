"""A digest of a multiset of rows. Sinks compare their output by it, without keeping or sorting the rows.

The digest is equal for equal rows in any order and any batches, and for any chunking, slicing or dictionary encoding,
in all processes of one installation. It is not stable across versions of the kernel below (unlike ``keys.hash_rows``):
never store it.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from clonos_py.columns.keys import mix
from clonos_py.columns.views import Words

MODULUS = 2**64


def digest(batch: pa.RecordBatch) -> int:
    """The sum of the 64-bit hashes of all rows, modulo 2**64. Adding digests modulo ``MODULUS`` combines batches."""
    if batch.num_rows == 0 or batch.num_columns == 0:
        return 0
    return int(row_digests(batch).sum())


def row_digests(batch: pa.RecordBatch) -> Words:
    """One 64-bit hash per row over all columns in their order; names do not count."""
    import polars as pl

    columns = [_canonical(column) for column in batch.columns]
    frame = pl.DataFrame([pl.Series(str(i), pl.from_arrow(column)) for i, column in enumerate(columns)])
    return mix(frame.hash_rows(seed=1).to_numpy().copy())


def _canonical(column: Any) -> Any:
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    if pa.types.is_floating(column.type):
        column = pc.add(column, pa.scalar(0.0, column.type))
    return column
