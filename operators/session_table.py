"""Sessions as a table: results come before their session has ended, and a row that extends or merges sessions takes
back those that it replaces.

A row of the table is identified by the key and the bounds of its session. When rows come is a choice, as for other
windows (``window_table``). At every moment the rows of a key that are shown do not overlap, but for those that cannot
change any more: a session that was shown stays until the one that contains it now is shown, and is deleted with that.
Late rows within the lateness correct sessions that have ended with their batch. In the mode ``at_end`` a session is
emitted when nothing can change it any more.

The sessions are those of ``SessionAggregate``. ``pending`` holds those that have changed and are not shown yet,
``replaced`` those that were shown and are parts of others now, as they were shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from clonos_py.columns.ordering import stable_order
from clonos_py.columns.views import Bools, Ints, fixed
from clonos_py.model.aggregates import Aggregate
from clonos_py.model.operators import OperatorContext, Output
from clonos_py.model.state import OperatorState, united
from clonos_py.model.tables import TableMode
from clonos_py.model.windows import BOUNDS, Emit, OnChange, Session
from clonos_py.operators.emit_periods import EmitPeriods
from clonos_py.operators.intervals import END_COLUMN, SESSION_COLUMNS, START_COLUMN
from clonos_py.operators.keyed_chunks import grouped_schema, parted
from clonos_py.operators.keyed_rows import ROWS_TABLE, KeyedRows
from clonos_py.operators.pairs import without_match
from clonos_py.operators.sessions import SessionAggregate
from clonos_py.operators.table_output import TableOutput
from clonos_py.operators.window_table import PENDING_TABLE

REPLACED_TABLE = "replaced"


class SessionTable(SessionAggregate):
    """``schema``, except the weight of deltas and the ``kind`` of changes, is filled by name from the keys, the bounds
    and the aggregates. For ``mode``, ``retract_when_changed`` and ``kind`` see ``TableOutput``."""

    def __init__(
        self,
        keys: Sequence[str],
        window: Session,
        aggregates: Sequence[Aggregate],
        schema: pa.Schema,
        emit: Emit,
        mode: TableMode,
        time_column: str,
        lateness_us: int = 0,
        retract_when_changed: Sequence[str] | None = None,
        kind: str | None = None,
    ) -> None:
        self._output = TableOutput(schema, mode, retract_when_changed, kind)
        super().__init__(keys, window, aggregates, self._output.rows, time_column, lateness_us)
        self._when, self._periods = emit, EmitPeriods(emit)
        shown = zip(BOUNDS, SESSION_COLUMNS, strict=True)
        self._bounds = [column for name, column in shown if name in self._output.rows.names]
        self._pending = KeyedRows((*keys, *SESSION_COLUMNS), PENDING_TABLE)
        self._replaced = KeyedRows(keys, REPLACED_TABLE)

    def open(self, ctx: OperatorContext, out: Output) -> None:
        super().open(ctx, out)
        self._periods.open(ctx)

    @property
    def final(self) -> bool:
        return self._output.mode == "at_end"

    @property
    def partwise(self) -> bool:
        """Not with what is pending."""
        return False

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        super().on_rows(rows, side)
        if isinstance(self._when, OnChange):
            self._show(self._pending.all_numbers())
        elif self._pending.live_row_count:
            self._periods.pending()

    def on_watermark(self, watermark: int) -> int:
        before = self._reached
        held = super().on_watermark(watermark)
        if self._periods.passed(before, self._reached, ahead_us=1):
            self._show(self._pending.all_numbers())
        return held

    def on_timer(self, at: int) -> None:
        if self._periods.fired(at):
            self._show(self._pending.all_numbers())

    # ---- sessions

    def _became(self, before: pa.RecordBatch, after: pa.RecordBatch) -> None:
        if self.final:
            return
        positions, numbers = self._pending.find(before)
        self._pending.remove(numbers)
        self._pending.append(after)
        self._replaced.append(before.take(without_match(positions, before.num_rows)))

    def _emit(self, sessions: pa.RecordBatch) -> None:
        """Shows those of these sessions, which have ended, that have changed."""
        self._show(self._pending.find(sessions)[1])

    def _emit_late(self, rows: pa.RecordBatch) -> None:
        """They are only counted."""

    def _drop(self, numbers: Ints) -> None:
        if self.final and len(numbers):
            super()._emit(self._live.take(numbers))
        super()._drop(numbers)

    # ---- output

    def _show(self, numbers: Ints) -> None:
        """Emits pending sessions, and deletes the parts of them that were shown."""
        for part in parted(numbers):
            rows = self._in_order(self._pending.take(part))
            of, parts = self._parts_of(rows)
            if self._output.compares:
                self._emit_changes(rows, of, parts)
            else:
                self.out.emit(self._finish(rows))
            self._replaced.remove(parts)
        self._pending.remove(numbers)
        self._pending.compact()
        self._replaced.compact()

    def _parts_of(self, rows: pa.RecordBatch) -> tuple[Ints, Ints]:
        """Pairs (position in ``rows``, number of a replaced session within its bounds), in the order of ``rows``."""
        of, numbers = self._replaced.find(rows)
        if not len(numbers):
            return of, numbers
        parts = self._replaced.take(numbers, list(SESSION_COLUMNS))
        starts, ends = _bounds_of(rows)
        part_starts, part_ends = _bounds_of(parts)
        inside = np.flatnonzero((starts[of] <= part_starts) & (part_ends <= ends[of]))
        inside = inside[stable_order(of[inside])]
        return of[inside], numbers[inside]

    def _emit_changes(self, rows: pa.RecordBatch, of: Ints, numbers: Ints) -> None:
        replaced, before, deleted = np.zeros(rows.num_rows, bool), None, None
        if len(numbers):
            parts = self._replaced.take(numbers)
            same = self._have_same_bounds(rows.take(of), parts)
            replaced[of[same]] = True
            before = self._finish(parts.filter(pa.array(same))) if same.any() else None
            deleted = self._finish(parts.filter(pa.array(~same)))
        found = self._output.changed(before, self._finish(rows), replaced, deleted)
        if found is not None:
            self.out.emit(found)

    def _have_same_bounds(self, rows: pa.RecordBatch, parts: pa.RecordBatch) -> Bools:
        """Whether pairs of sessions of a key are the same row of the table."""
        found = np.ones(rows.num_rows, bool)
        for name in self._bounds:
            found &= fixed(rows.column(name)) == fixed(parts.column(name))
        return found

    # ---- state

    def tables(self, inputs: Sequence[pa.Schema]) -> Mapping[str, pa.Schema]:
        rows = grouped_schema(self._partials.stored_schema(inputs[0], SESSION_COLUMNS))
        return dict.fromkeys((ROWS_TABLE, PENDING_TABLE, REPLACED_TABLE), rows)

    def snapshot(self) -> OperatorState:
        live = self._live.snapshot({**self.values(), **self._periods.values()})
        return united(live, self._pending.snapshot({}), self._replaced.snapshot({}))

    def restore(self, parts: Sequence[OperatorState]) -> None:
        super().restore(parts)
        for rows in (self._pending, self._replaced):
            rows.restore(parts, self.ctx.groups)
        self._periods.restore(parts, pending=bool(self._pending.live_row_count))


def _bounds_of(sessions: pa.RecordBatch) -> tuple[Ints, Ints]:
    return fixed(sessions.column(START_COLUMN)), fixed(sessions.column(END_COLUMN))
