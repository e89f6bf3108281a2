"""Splits a batch among the downstream tasks."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from clonos_py.columns.ordering import stable_order


def split(batch: pa.RecordBatch, targets: npt.NDArray[np.int32], n: int) -> list[pa.RecordBatch | None]:
    """The rows for each of ``n`` targets, in order; None for a target without rows.

    A stable counting sort brings the rows of a target together; the parts are slices of one gathered batch. A batch for
    one target only is passed on unchanged.
    """
    parts: list[pa.RecordBatch | None] = [None] * n
    if batch.num_rows == 0:
        return parts
    counts = np.bincount(targets, minlength=n)
    first = int(targets[0])
    if counts[first] == batch.num_rows:
        parts[first] = batch
        return parts
    order = np.argsort(targets.astype(np.uint8), kind="stable") if n <= 2**8 else stable_order(targets)
    gathered = batch.take(order)
    start = 0
    for target, rows in enumerate(counts.tolist()):
        if rows:
            parts[target] = gathered.slice(start, rows)
            start += rows
    return parts
