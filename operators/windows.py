"""Aggregates over tumbling, hopping and cumulative windows, in event time or processing time.

Every input batch is reduced to one partial row per key and pane before it becomes state (``panes.py``). A window is
merged from its panes when it is due. In event time, that is when the watermark reaches its end. Late rows within the
allowed lateness are still processed, and each result that they change is emitted again. Rows that are later than that
go to port 1 and are counted as ``late_rows``. In processing time, the time of a batch is its arrival, and timers fire
windows at their ends. ``WindowCombine`` does the first reduction before the shuffle (D14).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from clonos_py.columns.grouping import group, group_integers
from clonos_py.columns.keys import key_groups
from clonos_py.columns.partition import split
from clonos_py.columns.views import Ints, concat, fixed
from clonos_py.model.aggregates import Aggregate
from clonos_py.model.operators import Extent, Operator, PartwiseOperator
from clonos_py.model.state import GROUP_COLUMN, OperatorState
from clonos_py.model.times import MAX_TIME
from clonos_py.model.windows import WINDOW_END, WINDOW_START, InPanes, Session
from clonos_py.operators.aggregation import Partials, constant
from clonos_py.operators.footprints import not_restorable
from clonos_py.operators.intervals import SESSION_COLUMNS
from clonos_py.operators.keyed_chunks import grouped_schema, stored, with_groups
from clonos_py.operators.lateness import LateForWindows
from clonos_py.operators.panes import PANE_COLUMN, PaneClock, Panes, SavedPanes
from clonos_py.operators.progress import EventTimeProgress
from clonos_py.operators.sliding import SlidingMerges
from clonos_py.operators.window_operator import LATE_PORT, WindowOperator, with_times

_SAVED = "panes.saved"
_VALUES_AT = "panes.values"


class WindowCombine(Operator):
    """Reduces each batch to one partial row per key and pane. Emits ``combined_schema``; keeps no state."""

    def __init__(self, keys: Sequence[str], window: InPanes, aggregates: Sequence[Aggregate], time_column: str) -> None:
        self._partials = Partials(keys, aggregates)
        self._clock = PaneClock(window)
        self._time_column = time_column

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        rows, times = with_times(rows, self._time_column, self.ctx)
        panes = self._clock.assign(times)
        outside = self._clock.outside(panes)
        if outside is not None:
            rows, panes = rows.filter(pa.array(~outside)), panes[~outside]
        if rows.num_rows:
            self.out.emit(by_pane(self._partials, rows, panes))


class WindowAggregate(WindowOperator, PartwiseOperator):
    """Emits one result per key and window. ``combined``: input, and thus late rows, are partial rows of
    ``WindowCombine``. Its parts are panes, with all keys."""

    def __init__(
        self,
        keys: Sequence[str],
        window: InPanes,
        aggregates: Sequence[Aggregate],
        schema: pa.Schema,
        time_column: str | None = None,
        lateness_us: int = 0,
        combined: bool = False,
    ) -> None:
        super().__init__(keys, window, aggregates, schema, time_column, lateness_us, combined)
        self._clock = PaneClock(window, lateness_us)
        self._late_rule = LateForWindows(window, self._time_column, lateness_us)
        self._panes = Panes(self._partials)
        self._saved = SavedPanes(self._panes)
        self._in_parts = False
        self._at: dict[int, dict[str, Any]] = {}
        """By position of a footprint: the values of a snapshot there."""
        self._position = -1
        """In a rebuild: that of the current event; -1: there is none."""
        self._end_values: list[OperatorState] = []
        """In a rebuild: the values of the snapshot with which it ends."""
        self._merges = SlidingMerges(self._panes, self._clock)
        self._progress = EventTimeProgress()
        self._next_end = MAX_TIME

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        if self._processing_time:
            self._take_now(rows)
        elif self._combined:
            rows, _ = self._in_windows(rows, fixed(rows.column(PANE_COLUMN)))
            self._take(rows)
        else:
            rows, times = with_times(self._timely(rows), self._time_column, self.ctx)
            rows, panes = self._in_windows(rows, self._clock.assign(times))
            self._take(by_pane(self._partials, self._arrivals.numbered(rows, self._time_column), panes))

    def tables(self, inputs: Sequence[pa.Schema]) -> Mapping[str, pa.Schema]:
        return {"panes": grouped_schema(self._partials.stored_schema(inputs[0], [PANE_COLUMN]))}

    def snapshot(self) -> OperatorState:
        return OperatorState({"panes": self._panes.snapshot()}, self._values())

    def _values(self) -> dict[str, Any]:
        values = self._progress.values(self.ctx.groups) | {"window_rows": self._merges.last_rows}
        return values | self._arrivals.values()

    def restore(self, parts: Sequence[OperatorState]) -> None:
        if any(_SAVED in part.values for part in parts):
            self._restore_saved(parts)
            return
        self.forget()
        self._position = -1
        self._panes.restore(stored(parts, "panes"), self.ctx.groups)
        self._restore_values(parts)

    def _restore_values(self, parts: Sequence[OperatorState]) -> None:
        self._merges.restore(min((part.values["window_rows"] for part in parts), default=0))
        self._progress.restore(parts, self.ctx.groups, self.ctx.key_groups)
        self._arrivals.restore(parts)
        self._next_end = MAX_TIME
        for start in self._panes.starts():
            self._expect(start)

    # ---- parts

    @property
    def partwise(self) -> bool:
        """Not in processing time, which does not come again."""
        return not self._processing_time

    def save_in_parts(self) -> None:
        self._in_parts = True

    def save(self, position: int) -> None:
        self._saved.save(position)
        self._note(position)

    def check(self, position: int, parts: int) -> None:
        self._saved.check(position, parts)
        self._note(position)

    def forget(self) -> None:
        self._saved.clear()
        self._at = {}

    def _note(self, position: int) -> None:
        """Keeps the values at the positions of footprints, and at this one."""
        kept = {*self._saved.extent.positions, position}
        self._at = {at: values for at, values in self._at.items() if at in kept} | {position: self._values()}

    @property
    def extent(self) -> Extent:
        return self._saved.extent

    def footprints(self) -> OperatorState:
        chunks, log = self._saved.snapshot()
        at = [[position, values] for position, values in sorted(self._at.items())]
        return OperatorState({"panes": chunks}, self._values() | {_SAVED: log, _VALUES_AT: at})

    def _restore_saved(self, parts: Sequence[OperatorState]) -> None:
        if len(parts) > 1 or not self._in_parts:
            raise not_restorable(self.ctx.operator)
        values = parts[0].values
        self._panes.restore(self._saved.restore(parts[0].tables["panes"], values[_SAVED]), self.ctx.groups)
        self._at = dict(values[_VALUES_AT])
        self._position = min(self._saved.extent.positions, default=-1)
        self._end_values = [OperatorState({}, values)]
        self._restore_values([OperatorState({}, self._at.get(self._position, values))])

    def begin_rebuild(self) -> None:
        """Chunks of panes are taken as they are."""

    def rebuild(self, rows: pa.RecordBatch, side: int, position: int) -> None:
        self._position = position
        self.on_rows(rows, side)

    def rebuilt(self) -> None:
        self._position = -1
        self._restore_values(self._end_values)

    def _take_now(self, rows: pa.RecordBatch) -> None:
        """Processes rows in processing time. This never decreases here, even if the clock is set back: closed windows
        stay closed."""
        now = max(self.ctx.time.now(), self._progress.latest)
        pane = now // self._clock.pane * self._clock.pane
        if self._clock.windows(pane):
            groups = self._partials.groups(rows)
            rows = self._arrivals.numbered(rows)
            partial = self._partials.combine(rows, groups, {PANE_COLUMN: constant(pane, groups.size)})
            self._take(partial)

    def _take(self, partial: pa.RecordBatch) -> None:
        """Adds partial rows to the state. Emitted results that they change are emitted again."""
        if partial.num_rows == 0:
            return
        partial = with_groups(partial, self._partials.keys, self.ctx.key_groups)
        parts = split_panes(partial)
        if self._position >= 0:
            parts = [part for part in parts if self._saved.counts(part[0], self._position)]
        elif self._lateness_us:
            self._update(parts)
        for start, part in parts:
            self._panes.append(start, part)
            self._merges.changed(start)
            self._expect(start)

    def _in_windows(self, rows: pa.RecordBatch, panes: Ints) -> tuple[pa.RecordBatch, Ints]:
        """The rows that an open window contains. Late rows go to their port."""
        outside = self._clock.outside(panes)
        if outside is not None and outside.any():
            rows, panes = rows.filter(pa.array(~outside)), panes[~outside]
        if rows.num_rows == 0 or int(panes.min()) >= self._clock.late_before(self._progress.latest):
            return rows, panes
        late = panes < self._late_before(rows)
        self.ctx.count("late_rows", int(late.sum()))
        self.out.emit(rows.filter(pa.array(late)), LATE_PORT)
        return rows.filter(pa.array(~late)), panes[~late]

    def _late_before(self, rows: pa.RecordBatch) -> int | Ints:
        """The time before which a row's pane is late; by row if key groups have reached different times."""
        if self._progress.ahead is None:
            return self._clock.late_before(self._progress.reached)
        groups = key_groups(rows, self._partials.keys, self.ctx.key_groups)
        reached = np.maximum(self._progress.ahead, self._progress.reached)
        return np.array([self._clock.late_before(at) for at in reached.tolist()])[groups]

    def _expect(self, pane: int) -> None:
        """Records the end of the first window of this pane that has not fired yet."""
        for window in self._clock.windows(pane):
            end = window + self._clock.size
            if end > self._progress.reached:
                self._next_end = min(self._next_end, end)
                if not self._processing_time:
                    break
                self.ctx.set_timer(end)

    def _advance(self, reached: int) -> None:
        """Fires the windows that end by ``reached``, earliest first, and drops panes that no window needs any more."""
        before = self._progress.reached
        if reached <= before:
            return
        if reached >= self._next_end and self._position < 0:
            for window in self._windows_of(self._panes.starts()):
                if before < window + self._clock.size <= reached:
                    self._emit(window, self._unfinished(window, self._merges.merged(window)))
        self._progress.advance(reached)
        if reached >= self._next_end:
            self._next_end = MAX_TIME
            for start in self._panes.starts():
                self._expect(start)
        self._panes.drop_before(self._clock.late_before(reached))
        self._merges.drop_before(self._clock.late_before(reached))

    def _update(self, parts: Sequence[tuple[int, pa.RecordBatch]]) -> None:
        """Emits updated results of these keys in windows that have fired but are not dropped yet."""
        for window in self._windows_of(start for start, _ in parts):
            if window + self._clock.size <= self._progress.reached < self._clock.changes_until(window):
                panes = self._clock.panes(window)
                changed = [part for start, part in parts if start in panes]
                self._emit(window, self._changed(changed, self._panes.rows(panes)))

    def _changed(self, changed: list[pa.RecordBatch], kept: list[pa.RecordBatch]) -> pa.RecordBatch:
        """Merges all rows, and returns those of the keys in ``changed``."""
        partial = concat([*changed, *kept])
        groups = self._partials.groups(partial)
        merged = self._partials.merge(partial, groups)
        return merged.filter(pa.array(groups.first < sum(part.num_rows for part in changed)))

    def _unfinished(self, window: int, partial: pa.RecordBatch) -> pa.RecordBatch:
        """Removes the rows of key groups whose former instance had already finished this window."""
        if self._progress.ahead is None:
            return partial
        ahead = self._progress.ahead.take(fixed(partial.column(GROUP_COLUMN)))
        return partial.filter(pa.array(ahead < self._clock.changes_until(window)))

    def _windows_of(self, panes: Iterable[int]) -> list[int]:
        return sorted({window for pane in panes for window in self._clock.windows(pane)})

    def _emit(self, window: int, partial: pa.RecordBatch) -> None:
        if partial.num_rows == 0:
            return
        bounds = {
            WINDOW_START: constant(self._clock.start(window), partial.num_rows),
            WINDOW_END: constant(window + self._clock.size, partial.num_rows),
        }
        self.out.emit(self._partials.finish(partial, self._schema, bounds))


def combined_schema(
    input_schema: pa.Schema, keys: Sequence[str], window: InPanes | Session, aggregates: Sequence[Aggregate]
) -> pa.Schema:
    """The schema that ``WindowCombine`` or, for sessions, ``SessionCombine`` emits for rows of ``input_schema``."""
    names = SESSION_COLUMNS if isinstance(window, Session) else (PANE_COLUMN,)
    extra = [pa.field(name, pa.int64()) for name in names]
    return pa.schema(Partials(keys, aggregates).fields(input_schema, extra))


def by_pane(partials: Partials, rows: pa.RecordBatch, panes: Ints) -> pa.RecordBatch:
    """One partial row per key and pane."""
    keys: list[Any] = [rows.column(key) for key in partials.keys]
    groups = group([panes, *keys], rows.num_rows)
    return partials.combine(rows, groups, {PANE_COLUMN: pa.array(panes[groups.first])})


def split_panes(partial: pa.RecordBatch) -> list[tuple[int, pa.RecordBatch]]:
    """Splits partial rows by pane, earliest first."""
    panes = fixed(partial.column(PANE_COLUMN))
    low = int(panes.min())
    if low == int(panes.max()):
        return [(low, partial)]
    groups = group_integers(panes)
    parts = split(partial, groups.ids.astype(np.int32), groups.size)
    found = [(int(fixed(part.column(PANE_COLUMN))[0]), part) for part in parts if part is not None]
    return sorted(found, key=lambda pair: pair[0])
