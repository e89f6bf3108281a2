"""The event times that windows and joins take: the bounds of a window or join fit into 64 bits, too."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from clonos_py.columns.views import Ints, fixed
from clonos_py.model.errors import UserCodeError
from clonos_py.model.hidden import is_hidden

_FARTHEST_US = 2**62
"""About 146,000 years from 1970. Plus the longest duration it is still a time."""


def event_times(rows: pa.RecordBatch, column: str) -> Ints:
    """The event times of rows, none of which is null. Raises UserCodeError for a time so far from 1970 that the end of
    its window may not be a time."""
    times: Ints = fixed(rows.column(column)).astype(np.int64, copy=False)
    if len(times):
        for far in (int(times.min()), int(times.max())):
            if not -_FARTHEST_US <= far <= _FARTHEST_US:
                where = "the event time" if is_hidden(column) else f"column {column!r}, the event time,"
                raise UserCodeError(
                    f"{where} is {far}: windows and joins take times at most {_FARTHEST_US} microseconds from 1970; "
                    "filter such rows out before, or make the time null, so that they are dropped and counted"
                )
    return times
