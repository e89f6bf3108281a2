"""Top-n per key in tumbling and hopping event-time windows, emitted when the watermark reaches a window's end.

The state holds the first n rows of each key in each open window. A row that belongs to several windows is stored once
for each. Rows whose windows have closed are late: they are dropped and counted as ``late_rows``. ``WindowTopCombine``
drops, before the shuffle, rows that are not among the first n of their batch (D14).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from clonos_py.columns.ordering import stable_order
from clonos_py.columns.views import Ints, fixed
from clonos_py.model.hidden import hidden
from clonos_py.model.operators import Operator
from clonos_py.model.state import GROUP_COLUMN, OperatorState
from clonos_py.model.tables import SortKey
from clonos_py.model.times import MAX_TIME, MIN_TIME
from clonos_py.model.windows import BOUNDS, WINDOW_END, WINDOW_START, Hopping, Tumbling
from clonos_py.operators.first_rows import FirstRows
from clonos_py.operators.keyed_chunks import grouped_schema, with_groups
from clonos_py.operators.keyed_rows import ROWS_TABLE
from clonos_py.operators.panes import PANE_COLUMN, PaneClock
from clonos_py.operators.progress import EventTimeProgress
from clonos_py.operators.ranking import Ranking, with_ranks
from clonos_py.operators.window_operator import with_times

WINDOW_COLUMN = hidden("window")
"""int64 column: the start of the window, in microseconds."""


class WindowTopCombine(Operator):
    """Emits the rows that are among the first of their key and pane within a batch, with these columns."""

    def __init__(
        self,
        keys: Sequence[str],
        window: Tumbling | Hopping,
        n: int,
        order: Sequence[SortKey],
        time_column: str,
        columns: Sequence[str],
    ) -> None:
        self._clock = PaneClock(window)
        self._n = n
        self._ranking = Ranking((PANE_COLUMN, *keys), order)
        self._time_column = time_column
        self._columns = list(columns)

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        rows, times = with_times(rows, self._time_column, self.ctx)
        first = self._ranking.first(rows.append_column(PANE_COLUMN, pa.array(self._clock.assign(times))), self._n)
        self.out.emit(rows.select(self._columns).take(first))


class WindowTop(Operator):
    """The operator. ``schema`` is filled by name from the input, ``window_start``, ``window_end`` and ``rank`` (1, 2,
    ...). Rows that are equal in order are ranked by arrival."""

    def __init__(
        self,
        keys: Sequence[str],
        window: Tumbling | Hopping,
        n: int,
        order: Sequence[SortKey],
        schema: pa.Schema,
        time_column: str,
        rank: str | None = None,
    ) -> None:
        self._keys = tuple(keys)
        self._clock = PaneClock(window)
        self._schema = schema
        self._time_column = time_column
        self._rank = rank
        own = (rank, *BOUNDS)
        self._first = FirstRows((WINDOW_COLUMN, *keys), n, order, [name for name in schema.names if name not in own])
        self._progress = EventTimeProgress()
        self._next_end = MAX_TIME

    @property
    def final(self) -> bool:
        return True

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        rows, times = with_times(rows, self._time_column, self.ctx)
        rows = with_groups(rows, self._keys, self.ctx.key_groups)
        positions, windows = self._on_time(rows, *self._windows(times))
        if not len(positions):
            return
        rows = rows.take(positions).append_column(WINDOW_COLUMN, pa.array(windows))
        self._first.put(rows.select([*self._first.columns, GROUP_COLUMN]))
        self._next_end = min(self._next_end, int(windows.min()) + self._clock.size)
        self._first.rows.compact()

    def on_watermark(self, watermark: int) -> int:
        if watermark > self._progress.reached:
            self._fire(watermark)
            self._progress.advance(watermark)
        return watermark

    def tables(self, inputs: Sequence[pa.Schema]) -> Mapping[str, pa.Schema]:
        rows = inputs[0].append(pa.field(WINDOW_COLUMN, pa.int64()))
        return {ROWS_TABLE: grouped_schema(rows, self._first.columns)}

    def snapshot(self) -> OperatorState:
        state = self._first.snapshot()
        return OperatorState(state.tables, {**state.values, **self._progress.values(self.ctx.groups)})

    def restore(self, parts: Sequence[OperatorState]) -> None:
        self._first.rows.restore(parts, self.ctx.groups)
        self._progress.restore(parts, self.ctx.groups, self.ctx.key_groups)
        self._next_end = MIN_TIME  # the next watermark computes it

    def _windows(self, times: Ints) -> tuple[Ints, Ints]:
        """All pairs of a row's position and the start of a window that contains it, in the order of rows."""
        last = times // self._clock.slide * self._clock.slide
        found = []
        for back in range(0, self._clock.size, self._clock.slide):
            inside = np.flatnonzero(last - back > times - self._clock.size)
            found.append((inside, last[inside] - back))
        rows, starts = (np.concatenate(column) for column in zip(*found, strict=True))
        order = stable_order(rows)
        return rows[order], starts[order]

    def _on_time(self, rows: pa.RecordBatch, positions: Ints, windows: Ints) -> tuple[Ints, Ints]:
        """Removes pairs of closed windows. A row is late, and counted, if all of its windows have closed."""
        reached: int | Ints = self._progress.reached
        if self._progress.ahead is not None:
            ahead = self._progress.ahead.take(fixed(rows.column(GROUP_COLUMN)).take(positions))
            reached = np.maximum(ahead, self._progress.reached)
        taken = windows + self._clock.size > reached
        late = len(np.unique(positions)) - len(np.unique(positions[taken]))
        if late:
            self.ctx.count("late_rows", late)
        return positions[taken], windows[taken]

    def _fire(self, reached: int) -> None:
        """Emits and removes the windows that end by ``reached``."""
        if reached < self._next_end:
            return
        numbers = self._first.rows.all_numbers()
        ends = self._ends(numbers)
        due = ends <= reached
        self._next_end = int(ends[~due].min(initial=MAX_TIME))
        if not due.any():
            return
        rows = self._first.rows.take(numbers[due])
        ranked = self._first.ranking.ranked(rows)
        self._emit(rows.take(ranked.order), ranked.ranks)
        self._first.rows.remove(numbers[due])
        self._first.rows.compact()

    def _ends(self, numbers: Ints) -> Ints:
        if not len(numbers):
            return numbers
        starts: Ints = fixed(self._first.rows.take(numbers, [WINDOW_COLUMN]).column(WINDOW_COLUMN))
        return starts + self._clock.size

    def _emit(self, rows: pa.RecordBatch, ranks: Ints) -> None:
        starts = fixed(rows.column(WINDOW_COLUMN))
        bounds: dict[str, Any] = {WINDOW_START: starts, WINDOW_END: starts + self._clock.size}
        for name, times in bounds.items():
            if name in self._schema.names:
                rows = rows.append_column(name, pa.array(times))
        self.out.emit(with_ranks(rows, self._rank, ranks, self._schema))
