"""State with a time to live: rows that are so much older than the watermark are removed, in columns, from time to time.

What is found expired does not depend on when it is removed: an operator also looks at the rows that a batch touches.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from clonos_py.columns.views import Ints, fixed
from clonos_py.model.times import MAX_TIME, MIN_TIME
from clonos_py.operators.keyed_rows import KeyedRows

_SWEEPS = 4
"""How often in a time to live all rows are looked at."""
_NONE = np.empty(0, np.int64)


class Expiry:
    """Finds the rows of a state that have expired. ``ttl_us``: their time to live; None: for ever. ``column``: their
    event times, int64 or timestamps in microseconds; a row without one has expired once there is a watermark.
    ``stays_at_end``: no row expires because all input has ended."""

    def __init__(self, ttl_us: int | None, column: str, stays_at_end: bool = False) -> None:
        self._ttl_us, self._column = ttl_us, column
        self._never = (MIN_TIME, MAX_TIME) if stays_at_end else (MIN_TIME,)
        self._swept = MIN_TIME

    @property
    def none(self) -> bool:
        """Whether rows stay for ever."""
        return self._ttl_us is None

    def restored(self) -> None:
        """The rows were replaced: all of them are looked at soon."""
        self._swept = MIN_TIME

    def among(self, rows: KeyedRows, numbers: Ints, watermark: int, newest: Ints | None = None) -> Ints:
        """Those of the rows with these numbers that have expired at the watermark or, if that is later, at the time of
        the ``newest`` row that has come for each of them."""
        if self._ttl_us is None or not len(numbers):
            return _NONE
        reached = MIN_TIME if watermark in self._never else watermark
        limit = np.maximum(MIN_TIME + self._ttl_us, reached if newest is None else np.maximum(reached, newest))
        limit -= self._ttl_us
        times = times_of(rows.take(numbers, [self._column]), self._column)
        return numbers[(times <= limit) & (limit > MIN_TIME)]

    def due(self, rows: KeyedRows, watermark: int) -> Ints:
        """The rows to remove now: all that have expired; none if that was done recently."""
        if self._ttl_us is None or watermark - self._swept < self._ttl_us // _SWEEPS:
            return _NONE
        self._swept = watermark
        return self.among(rows, rows.all_numbers(), watermark)


def times_of(rows: pa.RecordBatch, column: str) -> Ints:
    """Times of rows in microseconds, MIN_TIME where there is none."""
    return fixed(rows.column(column).cast(pa.int64()).fill_null(MIN_TIME))
