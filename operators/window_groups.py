"""``map_groups``: a function of whole windows. It is called once for each key and window, when the window closes, with
all its rows in the order of event time, then of arrival, and the columns ``window_start`` and ``window_end``.

The state holds the rows of open windows, once for each window of a row. A row of a session is there once, beside the
open sessions.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from clonos_py.columns.frames import ArrowFrame, TabularKind
from clonos_py.columns.grouping import group
from clonos_py.columns.ordering import inverse, order_by, stable_order
from clonos_py.columns.views import Ints, fixed, take
from clonos_py.model.operators import OperatorContext, Output
from clonos_py.model.state import OperatorState, united
from clonos_py.model.times import MAX_TIME
from clonos_py.model.windows import BOUNDS, WINDOW_END, Assigned, Bounded, Session
from clonos_py.operators.bounded_windows import InWindows, assigned_windows, windows_of_panes
from clonos_py.operators.ended_sessions import EndedSessions, taken_with
from clonos_py.operators.event_time_buffer import EventTimeBuffer
from clonos_py.operators.keyed_chunks import grouped_schema, owned, stored, with_groups
from clonos_py.operators.keyed_rows import ROWS_TABLE, KeyedRows
from clonos_py.operators.panes import PaneClock
from clonos_py.operators.progress import EventTimeProgress
from clonos_py.operators.stateless import MapBatches
from clonos_py.operators.window_operator import with_times

_WAITING = "waiting"


class _MapGroups(MapBatches):
    """Gives the function the columns of ``given``, filled by name from the rows and the bounds of their window. Late
    rows are dropped and counted."""

    verb = "map_groups"

    def __init__(
        self,
        fn: Callable[..., ArrowFrame],
        given: pa.Schema,
        schema: pa.Schema,
        time_column: str,
        wants_ctx: bool = False,
        kind: TabularKind = TabularKind.BATCH,
    ) -> None:
        super().__init__(fn, schema, wants_ctx, kind)
        self._given = given
        self._time = time_column

    @property
    def final(self) -> bool:
        return True

    def on_late(self, rows: pa.RecordBatch) -> None:
        """Takes rows that are dropped. They are counted already."""

    def _call(self, rows: pa.RecordBatch, windows: Ints) -> None:
        """Calls the function for each window, in the order of their numbers. ``rows``, with bounds, are in the order
        of arrival; ``windows``: the number of the window of each."""
        order = order_by([windows, fixed(rows.column(self._time)).astype(np.int64, copy=False)])
        rows, windows = rows.take(order), windows[order]
        columns = [rows.column(field.name).cast(field.type) for field in self._given]
        given = pa.RecordBatch.from_arrays(columns, schema=self._given)
        cuts = [0, *(np.flatnonzero(windows[1:] != windows[:-1]) + 1).tolist(), len(windows)]
        for start, stop in itertools.pairwise(cuts):
            super().on_rows(given.slice(start, stop - start), 0)


class MapWindows(_MapGroups):
    """Of windows whose bounds a row tells when it comes."""

    def __init__(
        self,
        fn: Callable[..., ArrowFrame],
        given: pa.Schema,
        schema: pa.Schema,
        keys: Sequence[str],
        window: Bounded,
        time_column: str,
        wants_ctx: bool = False,
        kind: TabularKind = TabularKind.BATCH,
    ) -> None:
        super().__init__(fn, given, schema, time_column, wants_ctx, kind)
        self._keys = list(keys)
        self._clock = None if isinstance(window, Assigned) else PaneClock(window)

    def open(self, ctx: OperatorContext, out: Output) -> None:
        super().open(ctx, out)
        self._progress = EventTimeProgress()
        self._waiting = EventTimeBuffer(WINDOW_END, self._keys, ctx.key_groups)

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        rows, times = with_times(rows, self._time, self.ctx)
        found = self._windows(rows, times)
        reached = self._progress.reached_by_each(rows, self._keys, self.ctx.key_groups)
        is_open = found.ends > reached[found.rows]
        late = np.zeros(rows.num_rows, bool)
        late[found.rows] = True
        late[found.rows[is_open]] = False
        if late.any():
            self.ctx.count("late_rows", int(np.count_nonzero(late)))
            self.on_late(rows.filter(pa.array(late)))
        self._waiting.add(found.where(is_open).put(rows, 0))

    def _windows(self, rows: pa.RecordBatch, times: Ints) -> InWindows:
        if self._clock is None:
            return assigned_windows(rows)
        panes = self._clock.assign(times)
        found = windows_of_panes(self._clock, panes)
        outside = self._clock.outside(panes)
        return found if outside is None else found.where(~outside[found.rows])

    def on_watermark(self, watermark: int) -> int:
        due = self._waiting.take(watermark if watermark == MAX_TIME else watermark + 1)
        if due is not None:
            self._call(due, self._numbered(due))
        self._progress.advance(max(watermark, self._progress.reached))
        return watermark

    def _numbered(self, due: pa.RecordBatch) -> Ints:
        """Of each row, the number of its window. The rows are in the order of the windows' ends, and so are the
        windows."""
        windows = group([*(due.column(name) for name in reversed(BOUNDS)), *(due.column(key) for key in self._keys)],
                        due.num_rows)  # fmt: skip
        return inverse(stable_order(windows.first))[windows.ids]

    def tables(self, inputs: Sequence[pa.Schema]) -> Mapping[str, pa.Schema]:
        bounds = [pa.field(name, pa.int64()) for name in BOUNDS]
        return {ROWS_TABLE: grouped_schema(pa.schema([*bounds, *inputs[0]]))}

    def snapshot(self) -> OperatorState:
        return OperatorState({ROWS_TABLE: self._waiting.chunks()}, self._progress.values(self.ctx.groups))

    def restore(self, parts: Sequence[OperatorState]) -> None:
        self._progress.restore(parts, self.ctx.groups, self.ctx.key_groups)
        self._waiting.load(owned(stored(parts, ROWS_TABLE), self.ctx.groups))


class MapSessions(_MapGroups):
    """Of sessions in event time. ``key_fields``: the fields of the keys."""

    def __init__(
        self,
        fn: Callable[..., ArrowFrame],
        given: pa.Schema,
        schema: pa.Schema,
        key_fields: pa.Schema,
        window: Session,
        time_column: str,
        wants_ctx: bool = False,
        kind: TabularKind = TabularKind.BATCH,
    ) -> None:
        super().__init__(fn, given, schema, time_column, wants_ctx, kind)
        self._sessions = EndedSessions(key_fields, window)
        self._keys = key_fields.names
        self._rows = KeyedRows(self._keys, _WAITING)

    def open(self, ctx: OperatorContext, out: Output) -> None:
        super().open(ctx, out)
        self._sessions.open(ctx)

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        rows, _ = with_times(rows, self._time, self.ctx)
        rows, late = self._sessions.taken(rows, self._keys, self._time)
        if late.num_rows:
            self.on_late(late)
        if rows.num_rows:
            self._rows.append(with_groups(rows, self._keys, self.ctx.key_groups))

    def on_watermark(self, watermark: int) -> int:
        for sessions in self._sessions.ended(watermark):
            of, rows = taken_with(sessions, self._rows, self._keys, self._time)
            for name in BOUNDS:
                rows = rows.append_column(name, take(sessions.column(name), of))
            self._call(rows, of)
        return watermark

    def tables(self, inputs: Sequence[pa.Schema]) -> Mapping[str, pa.Schema]:
        return {_WAITING: grouped_schema(inputs[0]), **self._sessions.tables}

    def snapshot(self) -> OperatorState:
        return united(self._rows.snapshot({}), self._sessions.operator.snapshot())

    def restore(self, parts: Sequence[OperatorState]) -> None:
        self._sessions.operator.restore(parts)
        self._rows.restore(parts, self.ctx.groups)
