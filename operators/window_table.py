"""Aggregates over windows as a table: results come before their window has closed, and late rows correct them.

A row of the table is identified by the key and the bounds of its window; without a window, by the key. When changed
rows are emitted is a choice: with each batch, when their window closes, or every so often in event time or processing
time, and at the close, too. Changes after the close, by late rows within the lateness, are emitted with their batch.
A row that changed several times since it was emitted is emitted once. In the mode ``at_end`` a row is emitted when
nothing can change it any more.

The state has one partial row for each row of the table whose window may still change. Rows that have changed and are
not emitted yet are ``pending``, as they were emitted last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from clonos_py.columns.grouping import group
from clonos_py.columns.ordering import order_by, stable_order
from clonos_py.columns.views import Bools, Ints, concat, fixed
from clonos_py.model.aggregates import Aggregate
from clonos_py.model.hidden import hidden
from clonos_py.model.operators import Operator, OperatorContext, Output
from clonos_py.model.state import OperatorState, united
from clonos_py.model.tables import TableMode
from clonos_py.model.times import MAX_TIME
from clonos_py.model.windows import BOUNDS, WINDOW_END, Assigned, Bounded, Emit, OnChange
from clonos_py.operators.aggregation import Partials
from clonos_py.operators.arrivals import Arrivals
from clonos_py.operators.bounded_windows import InWindows, assigned_windows, windows_of_panes
from clonos_py.operators.emit_periods import EmitPeriods
from clonos_py.operators.keyed_chunks import grouped_schema, parted, with_groups
from clonos_py.operators.keyed_rows import ROWS_TABLE, KeyedRows
from clonos_py.operators.panes import PANE_COLUMN, PaneClock
from clonos_py.operators.progress import EventTimeProgress
from clonos_py.operators.table_output import TableOutput
from clonos_py.operators.upserts import Merged, merged_with
from clonos_py.operators.window_operator import with_times
from clonos_py.operators.windows import by_pane

PENDING_TABLE = "pending"
_SHOWN = hidden("shown")
"""boolean column of pending rows: whether it was emitted before, with the values of this row."""


class WindowTable(Operator):
    """``schema``, except the weight of deltas and the ``kind`` of changes, is filled by name from the keys, the bounds
    and the aggregates. ``window``: None for a table of all rows. For ``mode``, ``retract_when_changed`` and ``kind``
    see ``TableOutput``."""

    def __init__(
        self,
        keys: Sequence[str],
        window: Bounded | None,
        aggregates: Sequence[Aggregate],
        schema: pa.Schema,
        emit: Emit,
        mode: TableMode,
        time_column: str | None = None,
        lateness_us: int = 0,
        retract_when_changed: Sequence[str] | None = None,
        kind: str | None = None,
    ) -> None:
        self._keys = list(keys)
        self._has_windows = window is not None
        self._clock = None if window is None or isinstance(window, Assigned) else PaneClock(window, lateness_us)
        self._lateness = lateness_us
        self._emit, self._periods = emit, EmitPeriods(emit)
        self._time = time_column
        identity = (*keys, *(BOUNDS if self._has_windows else ()))
        self._by_key = Partials(keys, aggregates)
        self._partials = Partials(identity, aggregates)
        self._arrivals = Arrivals(aggregates)
        self._output = TableOutput(schema, mode, retract_when_changed, kind)
        self._table, self._pending = KeyedRows(identity), KeyedRows(identity, PENDING_TABLE)

    def open(self, ctx: OperatorContext, out: Output) -> None:
        super().open(ctx, out)
        self._progress = EventTimeProgress()
        self._periods.open(ctx)
        self._next_close = self._next_drop = MAX_TIME

    @property
    def final(self) -> bool:
        return self._output.mode == "at_end"

    # ---- rows

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        if self._has_windows:
            partial = self._by_window(rows)
        else:
            partial = self._by_key.combine_by_key(self._arrivals.numbered(rows))
        if not partial.num_rows:
            return
        before, after, existed = self._upsert(with_groups(partial, self._keys, self.ctx.key_groups))
        if self._output.mode == "at_end":
            return
        if isinstance(self._emit, OnChange):
            self._show(before, after, existed)
            return
        self._wait(before, after, existed)
        self._emit_closed()
        if self._pending.live_row_count:
            self._periods.pending()

    def _by_window(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """A partial row for each key and open window. Late rows are counted."""
        assert self._time
        rows, times = with_times(rows, self._time, self.ctx)
        if self._clock is None:
            return self._of_assigned(rows)
        panes = self._clock.assign(times)
        outside = self._clock.outside(panes)
        if outside is not None:
            rows, panes = rows.filter(pa.array(~outside)), panes[~outside]
        late = panes < self._clock.late_before_each(
            self._progress.reached_by_each(rows, self._keys, self.ctx.key_groups)
        )
        if self._progress.reached == MAX_TIME:
            late[:] = True
        if late.any():
            self.ctx.count("late_rows", int(late.sum()))
            rows, panes = rows.filter(pa.array(~late)), panes[~late]
        partial = by_pane(self._by_key, self._arrivals.numbered(rows, self._time), panes)
        found = windows_of_panes(self._clock, fixed(partial.column(PANE_COLUMN)))
        found = found.where(self._are_open(partial, found))
        keys = self._by_key.groups(partial)
        groups = group([keys.ids[found.rows], found.ends], len(found.rows))  # the end of a window says which it is
        return self._partials.merge(found.put(partial.drop_columns([PANE_COLUMN]), len(self._keys)), groups)

    def _of_assigned(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        found = assigned_windows(rows)
        is_open = self._are_open(rows, found)
        self.ctx.count("late_rows", int((~is_open).sum()))
        rows = self._arrivals.numbered(found.where(is_open).put(rows, 0), self._time)
        return self._partials.combine_by_key(rows)

    def _are_open(self, rows: pa.RecordBatch, found: InWindows) -> Bools:
        """Whether each window of a row may still change."""
        reached = self._progress.reached_by_each(rows, self._keys, self.ctx.key_groups)
        is_open: Bools = found.ends + self._lateness > reached[found.rows]
        return is_open

    def _upsert(self, partial: pa.RecordBatch) -> Merged:
        """Merges partial rows into the table."""
        merged = merged_with(self._table, partial, self._partials)
        self._table.append(merged.after)
        self._table.compact()
        if self._has_windows:
            self._next_drop = min(self._next_drop, int(_ends(merged.after).min()) + self._lateness)
        return merged

    def _wait(self, before: pa.RecordBatch, after: pa.RecordBatch, existed: Bools) -> None:
        """Makes changed rows pending, unless they are. A pending row has the values that were emitted last."""
        shown = np.flatnonzero(existed)
        place = np.arange(len(existed)) + before.num_rows
        place[shown] = np.arange(len(shown))
        rows = concat([before, after]).take(place).append_column(_SHOWN, pa.array(existed))
        is_new = np.ones(rows.num_rows, bool)
        is_new[self._pending.find(rows)[0]] = False
        if is_new.any():
            self._pending.append(rows.filter(pa.array(is_new)))
        if self._has_windows:
            self._next_close = min(self._next_close, int(_ends(rows).min()))

    # ---- time

    def on_watermark(self, watermark: int) -> int:
        before, reached = self._progress.reached, max(watermark, self._progress.reached)
        self._progress.advance(reached)
        if reached == MAX_TIME or self._periods.passed(before, reached):
            self._emit_pending(self._pending.all_numbers())
        self._emit_closed()
        if self._has_windows and reached >= self._next_drop and self._table.live_row_count:
            self._drop(reached)
        return watermark

    def on_timer(self, at: int) -> None:
        if self._periods.fired(at):
            self._emit_pending(self._pending.all_numbers())

    def on_end(self) -> None:
        if self._output.mode == "at_end" and self._table.live_row_count:
            numbers = self._table.all_numbers()
            if self._keys:
                numbers = numbers[order_by(self._table.places(numbers, self._keys))]
            self._emit_final(numbers)
        else:
            self._emit_pending(self._pending.all_numbers())

    def _emit_closed(self) -> None:
        """Emits pending rows whose window has closed."""
        if not self._has_windows or self._progress.reached < self._next_close:
            return
        numbers = self._pending.all_numbers()
        self._next_close = MAX_TIME
        if len(numbers):
            ends = _ends(self._pending.take(numbers, [WINDOW_END]))
            closed = ends <= self._progress.reached
            self._next_close = int(ends[~closed].min(initial=MAX_TIME))
            self._emit_pending(numbers[closed][stable_order(ends[closed])])

    def _drop(self, reached: int) -> None:
        """Drops the rows of windows that cannot change any more."""
        numbers = self._table.all_numbers()
        ends = _ends(self._table.take(numbers, [WINDOW_END]))
        over = ends + self._lateness <= reached
        self._next_drop = int(ends[~over].min(initial=MAX_TIME - self._lateness)) + self._lateness
        numbers = numbers[over][stable_order(ends[over])]
        if self._output.mode == "at_end" and len(numbers):
            self._emit_final(numbers)
        self._table.remove(numbers)
        self._table.compact()

    # ---- output

    def _emit_pending(self, numbers: Ints) -> None:
        for part in parted(numbers):
            rows = self._pending.take(part)
            of, found = self._table.find(rows)
            shown = np.array(rows.column(_SHOWN).to_numpy(zero_copy_only=False), bool)
            before = rows.filter(pa.array(shown)).drop_columns([_SHOWN])
            self._show(before, self._table.take(found[np.argsort(of)]), shown)
        self._pending.remove(numbers)
        self._pending.compact()

    def _emit_final(self, numbers: Ints) -> None:
        for part in parted(numbers):
            self.out.emit(self._finish(self._table.take(part)))

    def _show(self, before: pa.RecordBatch, after: pa.RecordBatch, existed: Bools) -> None:
        if not self._output.compares:
            self.out.emit(self._finish(after))
            return
        old = self._finish(before) if before.num_rows else None
        found = self._output.changed(old, self._finish(after), existed)
        if found is not None:
            self.out.emit(found)

    def _finish(self, partial: pa.RecordBatch) -> pa.RecordBatch:
        return self._partials.finish(partial, self._output.rows, {})

    # ---- state

    def tables(self, inputs: Sequence[pa.Schema]) -> Mapping[str, pa.Schema]:
        partial = self._by_key.stored_schema(inputs[0], ())
        if self._has_windows:
            for place, name in enumerate(BOUNDS):
                partial = partial.insert(len(self._keys) + place, pa.field(name, pa.int64()))
        rows = grouped_schema(partial)
        return {ROWS_TABLE: rows, PENDING_TABLE: rows.append(pa.field(_SHOWN, pa.bool_()))}

    def snapshot(self) -> OperatorState:
        values = self._progress.values(self.ctx.groups) | self._arrivals.values() | self._periods.values()
        return united(self._table.snapshot(values), self._pending.snapshot({}))

    def restore(self, parts: Sequence[OperatorState]) -> None:
        for rows in (self._table, self._pending):
            rows.restore(parts, self.ctx.groups)
        self._progress.restore(parts, self.ctx.groups, self.ctx.key_groups)
        self._arrivals.restore(parts)
        self._next_close = self._next_drop = self._progress.reached if self._table.live_row_count else MAX_TIME
        self._periods.restore(parts, pending=bool(self._pending.live_row_count))


def _ends(rows: pa.RecordBatch) -> Ints:
    return fixed(rows.column(WINDOW_END))
