"""Session windows: aggregates over rows of a key at most a gap apart, in event time or processing time, as in Flink.

One sort reduces a batch to its own sessions. These are merged with the live sessions of their keys that they overlap or
touch. Other keys cost nothing, and a queue by end time yields the sessions that are due. A session is emitted when the
watermark has passed its end (a row of exactly that time would still belong to it), or when the processing time has
reached its end. It is retained for the allowed lateness, and emitted again when late rows change it. A row is late if
its session, merged with live ones, ended longer ago than the allowed lateness. Late rows go to port 1 and are counted
as ``late_rows``. ``SessionCombine`` does the first reduction before the shuffle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from clonos_py.columns.grouping import Groups, group
from clonos_py.columns.views import Bools, Ints, concat, fixed
from clonos_py.model.aggregates import Aggregate
from clonos_py.model.operators import Operator
from clonos_py.model.state import OperatorState
from clonos_py.model.times import MAX_TIME, MIN_TIME
from clonos_py.model.windows import Session
from clonos_py.operators.aggregation import ROWS_COLUMN, Partials
from clonos_py.operators.due_queue import DueQueue
from clonos_py.operators.intervals import END_COLUMN, START_COLUMN, merge_intervals
from clonos_py.operators.keyed_chunks import grouped_schema, with_groups
from clonos_py.operators.keyed_rows import ROWS_TABLE, KeyedRows
from clonos_py.operators.window_operator import LATE_PORT, WindowOperator, with_times


class SessionCombine(Operator):
    """Reduces each batch to one partial row per session. Emits ``windows.combined_schema``; keeps no state."""

    def __init__(self, keys: Sequence[str], window: Session, aggregates: Sequence[Aggregate], time_column: str) -> None:
        self._partials = Partials(keys, aggregates)
        self._gap_us = window.gap_us
        self._time_column = time_column

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        rows, times = with_times(rows, self._time_column, self.ctx)
        if rows.num_rows:
            self.out.emit(by_session(self._partials, rows, times, self._gap_us)[0])


class SessionAggregate(WindowOperator):
    """Emits one result per key and session. ``combined``: input, and thus late rows, are partial rows of
    ``SessionCombine``."""

    def __init__(
        self,
        keys: Sequence[str],
        window: Session,
        aggregates: Sequence[Aggregate],
        schema: pa.Schema,
        time_column: str | None = None,
        lateness_us: int = 0,
        combined: bool = False,
    ) -> None:
        super().__init__(keys, window, aggregates, schema, time_column, lateness_us, combined)
        self._gap_us = window.gap_us
        self._live = KeyedRows(keys)
        self._reached = MIN_TIME
        self._starts, self._ends = np.empty(0, np.int64), np.empty(0, np.int64)
        self._firing, self._expiring = DueQueue(), DueQueue()

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        if rows.num_rows == 0:
            return
        if self._combined:
            sessions, groups = rows, None
        else:
            rows, times = self._times(rows)
            numbered = self._arrivals.numbered(rows)
            sessions, groups = by_session(self._partials, numbered, times, self._gap_us)
        if sessions.num_rows:
            self._take(sessions, rows, groups)

    def on_watermark(self, watermark: int) -> int:
        if not self._processing_time:
            self._advance(watermark if watermark in (MIN_TIME, MAX_TIME) else watermark - 1)
        return watermark

    def tables(self, inputs: Sequence[pa.Schema]) -> Mapping[str, pa.Schema]:
        return {ROWS_TABLE: grouped_schema(self._partials.stored_schema(inputs[0], [START_COLUMN, END_COLUMN]))}

    def snapshot(self) -> OperatorState:
        return self._live.snapshot({"reached": self._reached, **self._arrivals.values()})

    def restore(self, parts: Sequence[OperatorState]) -> None:
        self._live.restore(parts, self.ctx.groups)
        self._reached = min((part.values["reached"] for part in parts), default=MIN_TIME)
        self._arrivals.restore(parts)
        self._renumber()
        if self._processing_time:
            for end in np.unique(np.concatenate([np.empty(0, np.int64), *self._live_ends()])).tolist():
                self.ctx.set_timer(end)

    def _times(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, Ints]:
        if self._processing_time:
            now = max(self.ctx.time.now(), self._reached)
            self.ctx.set_timer(now + self._gap_us)
            return rows, np.full(rows.num_rows, now, np.int64)
        return with_times(rows, self._time_column, self.ctx)

    def _take(self, sessions: pa.RecordBatch, rows: pa.RecordBatch, groups: Groups | None) -> None:
        """Merges the sessions of a batch into the live ones; ``rows`` are the rows of these sessions."""
        sessions = with_groups(sessions, self._partials.keys, self.ctx.key_groups)
        touching, touched = self._overlaps(sessions)
        late = self._late(sessions, touching)
        if late.any():
            self.ctx.count("late_rows", int(fixed(sessions.column(ROWS_COLUMN))[late].sum()))
            self.out.emit(rows.filter(pa.array(late if groups is None else late[groups.ids])), LATE_PORT)
            sessions = sessions.filter(pa.array(~late))
        if sessions.num_rows:
            self._merge(sessions, self._live.distinct(touched))

    def _overlaps(self, sessions: pa.RecordBatch) -> tuple[Ints, Ints]:
        """Pairs (position in ``sessions``, number of a live session) that overlap or touch."""
        positions, numbers = self._live.find(sessions)
        if len(numbers) == 0:
            return positions, numbers
        starts, ends = fixed(sessions.column(START_COLUMN)), fixed(sessions.column(END_COLUMN))
        meet = (starts[positions] <= self._ends[numbers]) & (self._starts[numbers] <= ends[positions])
        return positions[meet], numbers[meet]

    def _late(self, sessions: pa.RecordBatch, touching: Ints) -> Bools:
        late: Bools = fixed(sessions.column(END_COLUMN)) <= max(self._reached - self._lateness_us, MIN_TIME)
        late[touching] = False
        return late

    def _merge(self, sessions: pa.RecordBatch, touched: Ints) -> None:
        if len(touched):
            sessions = concat([self._live.take(touched), sessions])
            self._live.remove(touched)
        keys = group([sessions.column(key) for key in self._partials.keys], sessions.num_rows)
        starts, ends = fixed(sessions.column(START_COLUMN)), fixed(sessions.column(END_COLUMN))
        groups, starts, ends = merge_intervals(keys, starts, ends)
        bounds = {START_COLUMN: pa.array(starts), END_COLUMN: pa.array(ends)}
        merged = self._partials.merge(sessions, groups, bounds)
        self._note(self._live.append(merged), starts, ends)
        if (ends <= self._reached).any():
            self._emit(merged.filter(pa.array(ends <= self._reached)))
        if self._live.compact():
            self._renumber()

    def _note(self, numbers: Ints, starts: Ints, ends: Ints) -> None:
        """Records when these sessions are due."""
        room = int(numbers[-1]) + 1 if len(numbers) else 0
        if room > len(self._ends):
            self._starts = np.append(self._starts, np.empty(room, np.int64))
            self._ends = np.append(self._ends, np.empty(room, np.int64))
        self._starts[numbers], self._ends[numbers] = starts, ends
        upcoming = ends > self._reached
        self._firing.push(ends[upcoming], numbers[upcoming])
        if self._lateness_us:
            self._expiring.push(ends, numbers)

    def _renumber(self) -> None:
        """Rebuilds the queues and bounds, which depend on row numbers."""
        self._starts, self._ends = np.empty(0, np.int64), np.empty(0, np.int64)
        self._firing, self._expiring = DueQueue(), DueQueue()
        live = self._live.all()
        starts = [fixed(rows.column(START_COLUMN)) for rows in live]
        if live:
            self._note(self._live.all_numbers(), np.concatenate(starts), np.concatenate(self._live_ends()))

    def _live_ends(self) -> list[Ints]:
        return [fixed(rows.column(END_COLUMN)) for rows in self._live.all()]

    def _advance(self, reached: int) -> None:
        """Emits the sessions that end by ``reached``, and removes those that late rows can no longer change."""
        if reached <= self._reached:
            return
        self._reached = reached
        due = self._live.live_numbers(self._firing.pop(reached))
        if len(due):
            self._emit(self._live.take(due))
        if self._lateness_us:
            due = self._live.live_numbers(self._expiring.pop(max(reached - self._lateness_us, MIN_TIME)))
        self._live.remove(due)
        if self._live.compact():
            self._renumber()

    def _emit(self, sessions: pa.RecordBatch) -> None:
        bounds = {"window_start": sessions.column(START_COLUMN), "window_end": sessions.column(END_COLUMN)}
        self.out.emit(self._partials.finish(sessions, self._schema, bounds))


def by_session(partials: Partials, rows: pa.RecordBatch, times: Ints, gap_us: int) -> tuple[pa.RecordBatch, Groups]:
    """Reduces rows to one partial row per key and session. Also returns the groups of rows."""
    keys = group([rows.column(key) for key in partials.keys], rows.num_rows)
    groups, starts, ends = merge_intervals(keys, times, times + gap_us)
    bounds = {START_COLUMN: pa.array(starts), END_COLUMN: pa.array(ends)}
    return partials.combine(rows, groups, bounds), groups
