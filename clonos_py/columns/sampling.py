"""A sample of rows that their values decide, so that a replay, and any cut into batches, chooses the same ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from clonos_py.columns.keys import hash_rows, mix
from clonos_py.columns.views import Bools, Column

_BITS = 53
"""As many as a float holds exactly."""


def sampled(columns: Sequence[Column], fraction: float, seed: int) -> Bools:
    """Which rows are in the sample. Rows that are equal in ``columns`` are in it together. A greater fraction of the
    same seed has all rows of a smaller one. The hash that decides is mixed once more than that of key groups: a sample
    of keys is spread over all tasks."""
    rows = pa.RecordBatch.from_arrays(list(columns), names=[str(number) for number, _ in enumerate(columns)])
    hashes = hash_rows(rows, rows.schema.names) ^ mix(np.array([seed], np.int64).view(np.uint64))
    found: Bools = mix(hashes) >> np.uint64(64 - _BITS) < np.uint64(round(fraction * (1 << _BITS)))
    return found
