"""Sessions that end as a whole, with all their rows: for joins and functions of sessions.

The sessions are those of ``SessionAggregate``, without aggregates. The rows lie beside them, and leave the state with
their session.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from clonos_py.columns.views import Column, Ints, fixed, plain
from clonos_py.model.hidden import hidden
from clonos_py.model.operators import OperatorContext
from clonos_py.model.windows import BOUNDS, Session
from clonos_py.operators.event_time_range import event_times
from clonos_py.operators.keyed_rows import KeyedRows
from clonos_py.operators.pairs import without_match
from clonos_py.operators.sessions import SessionAggregate
from clonos_py.operators.window_operator import LATE_PORT

_TIME, _ROW = hidden("time"), hidden("row")


class EndedSessions:
    """The open sessions of rows with the columns ``key_fields``, in event time."""

    def __init__(self, key_fields: pa.Schema, window: Session) -> None:
        self._given = pa.schema([*key_fields, (_TIME, pa.int64()), (_ROW, pa.int64())])
        ended = pa.schema([*key_fields, *((name, pa.int64()) for name in BOUNDS)])
        self.operator = SessionAggregate(key_fields.names, window, (), ended, _TIME)
        self._ended: list[pa.RecordBatch] = []
        self._late: list[pa.RecordBatch] = []

    def open(self, ctx: OperatorContext) -> None:
        self.operator.open(ctx, self)

    def emit(self, rows: pa.RecordBatch, port: int = 0) -> None:
        """The output of the aggregation, which stays here."""
        (self._late if port == LATE_PORT else self._ended).append(rows)

    @property
    def tables(self) -> Mapping[str, pa.Schema]:
        return self.operator.tables([self._given])

    def taken(self, rows: pa.RecordBatch, keys: Sequence[str], time: str) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """Adds rows to the sessions, by these columns. Returns those that are not late, and the late ones, which are
        counted."""
        late = self._take([rows.column(key) for key in keys], event_times(rows, time))
        if not len(late):
            return rows, rows.slice(0, 0)
        return rows.take(without_match(late, rows.num_rows)), rows.take(late)

    def ended(self, watermark: int) -> list[pa.RecordBatch]:
        """The sessions that have ended by the watermark: their keys and bounds."""
        self.operator.on_watermark(watermark)
        ended, self._ended = self._ended, []
        return ended

    def _take(self, keys: Sequence[Column], times: Ints) -> Ints:
        columns = [*keys, pa.array(times), pa.array(np.arange(len(times)))]
        fields = zip(columns, self._given, strict=True)
        self.operator.on_rows(pa.record_batch([plain(c).cast(f.type) for c, f in fields], schema=self._given), 0)
        late, self._late = self._late, []
        return np.concatenate([np.empty(0, np.int64), *(fixed(rows.column(_ROW)) for rows in late)])


def taken_with(
    sessions: pa.RecordBatch, rows: KeyedRows, keys: Sequence[str], time: str
) -> tuple[Ints, pa.RecordBatch]:
    """The rows of these sessions, which leave ``rows``, in the order of sessions, then of arrival; with the number of
    the session of each. ``keys``: the names of the keys in ``sessions``; ``time``: the column of the rows' times.
    Requires that a row was appended before."""
    of, numbers = rows.find(sessions, named=keys)
    times = event_times(rows.take(numbers, [time]), time)
    starts, ends = (fixed(sessions.column(name)) for name in BOUNDS)
    inside = np.flatnonzero((starts[of] <= times) & (times < ends[of]))
    inside = inside[np.lexsort((numbers[inside], of[inside]))]
    of, numbers = of[inside], numbers[inside]
    found = rows.take(numbers)
    rows.remove(numbers)
    rows.compact()
    return of, found
