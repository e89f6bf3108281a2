"""Session windows: aggregates over rows of a key at most a gap apart, in event time or processing time, as in Flink.

One sort reduces a batch to its own sessions. These are merged with the live sessions of their keys that they overlap or
touch. Other keys cost nothing, and a queue by end time yields the sessions that are due. A session is emitted when the
watermark has passed its end (a row of exactly that time would still belong to it), or when the processing time has
reached its end. It is retained for the allowed lateness, and emitted again when late rows change it. A row is late if
its session, merged with live ones, ended longer ago than the allowed lateness. Late rows go to port 1 and are counted
as ``late_rows``. ``SessionCombine`` does the first reduction before the shuffle.

Rows may come with the watermark that they find in their partition (``columns/row_watermarks.py``). A row that is behind
it is not merged with a session that had ended by then, although the session is still live here. The other rows of a
batch are merged first: what comes after a row, and is not behind, neither ends nor joins a session that decides whether
the row is late.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from clonos_py.columns.grouping import Groups, group, group_integers
from clonos_py.columns.keys import hash_rows
from clonos_py.columns.ordering import stable_order
from clonos_py.columns.row_watermarks import with_watermarks, without_watermarks
from clonos_py.columns.views import Bools, Column, Ints, concat, fixed, valid
from clonos_py.model.aggregates import Aggregate
from clonos_py.model.operators import Operator
from clonos_py.model.state import OperatorState
from clonos_py.model.times import MAX_TIME, MIN_TIME
from clonos_py.model.windows import WINDOW_END, WINDOW_START, Session
from clonos_py.operators.aggregation import ROWS_COLUMN, Partials
from clonos_py.operators.due_queue import DueQueue
from clonos_py.operators.footprints import KeyedParts
from clonos_py.operators.intervals import END_COLUMN, START_COLUMN, merge_intervals
from clonos_py.operators.keyed_chunks import grouped_schema, with_groups
from clonos_py.operators.keyed_rows import KeyedRows
from clonos_py.operators.session_spans import SessionSpan, SessionSpans
from clonos_py.operators.window_operator import LATE_PORT, WindowOperator, with_times


class SessionCombine(Operator):
    """Reduces each batch to one partial row per session. Emits ``windows.combined_schema``; keeps no state."""

    def __init__(self, keys: Sequence[str], window: Session, aggregates: Sequence[Aggregate], time_column: str) -> None:
        self._partials = Partials(keys, aggregates)
        self._gap_us = window.gap_us
        self._time_column = time_column

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        rows, times = with_times(rows, self._time_column, self.ctx)
        if not rows.num_rows:
            return
        rows, watermarks = without_watermarks(rows)
        if watermarks is None:
            self.out.emit(by_session(self._partials, rows, times, self._gap_us)[0])
            return
        behind = _present(watermarks)
        if not behind.all():
            ahead = rows.filter(pa.array(~behind)) if behind.any() else rows
            sessions, _ = by_session(self._partials, ahead, times[~behind], self._gap_us)
            self.out.emit(with_watermarks(sessions, pa.nulls(sessions.num_rows, pa.int64())))
        if behind.any():
            alone = by_row(self._partials, rows.filter(pa.array(behind)), times[behind], self._gap_us)
            self.out.emit(with_watermarks(alone, watermarks.drop_null()))


class _Given(NamedTuple):
    """Rows, the same with their arrival numbers, and their times. Without times they are partial rows of sessions."""

    rows: pa.RecordBatch
    numbered: pa.RecordBatch
    times: Ints | None

    def where(self, taken: Bools) -> _Given:
        mask = pa.array(taken)
        return _Given(
            self.rows.filter(mask), self.numbered.filter(mask), None if self.times is None else self.times[taken]
        )


class SessionAggregate(WindowOperator, KeyedParts):
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
        WindowOperator.__init__(self, keys, window, aggregates, schema, time_column, lateness_us, combined)
        self._gap_us = window.gap_us
        self._live = KeyedRows(keys)
        KeyedParts.__init__(self, keys, self._live)
        self._reached = MIN_TIME
        self._starts, self._ends = np.empty(0, np.int64), np.empty(0, np.int64)
        self._firing, self._expiring = DueQueue(), DueQueue()

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        if rows.num_rows == 0:
            return
        rows, times = (rows, None) if self._combined else self._times(rows)
        rows, watermarks = without_watermarks(rows)
        given = _Given(rows, rows if times is None else self._arrivals.numbered(rows, self._time_column or None), times)
        if watermarks is None or watermarks.null_count == len(watermarks):
            self._take_ahead(given)
            return
        behind = _present(watermarks)
        self._take_ahead(given.where(~behind))
        self._take_behind(given.where(behind), fixed(watermarks.drop_null()))

    def on_watermark(self, watermark: int) -> int:
        if not self._processing_time:
            self._advance(watermark if watermark in (MIN_TIME, MAX_TIME) else watermark - 1)
        return watermark

    def tables(self, inputs: Sequence[pa.Schema]) -> Mapping[str, pa.Schema]:
        return self.tables_of(grouped_schema(self._partials.stored_schema(inputs[0], [START_COLUMN, END_COLUMN])))

    @property
    def partwise(self) -> bool:
        """Not in processing time, which does not come again."""
        return not self._processing_time

    def values(self) -> dict[str, Any]:
        return {**self.rebuild_values(), **self._arrivals.values()}

    def rebuild_values(self) -> dict[str, Any]:
        """Which rows are late depends on the time reached when they came."""
        return {"reached": self._reached}

    def snapshot(self) -> OperatorState:
        return self._live.snapshot(self.values())

    def restore(self, parts: Sequence[OperatorState]) -> None:
        values = self.restore_parts(parts, lambda: self._live.restore(parts, self.ctx.groups))
        self._reached = min((found["reached"] for found in values), default=MIN_TIME)
        self._arrivals.restore(parts)
        self._renumber()
        if self._processing_time:
            for end in np.unique(np.concatenate([np.empty(0, np.int64), *self._live_ends()])).tolist():
                self.ctx.set_timer(end)

    def begin_rebuild(self) -> None:
        super().begin_rebuild()
        self._renumber()

    def _times(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, Ints]:
        if self._processing_time:
            now = max(self.ctx.time.now(), self._reached)
            self.ctx.set_timer(now + self._gap_us)
            return rows, np.full(rows.num_rows, now, np.int64)
        return with_times(rows, self._time_column, self.ctx)

    def _take_ahead(self, given: _Given) -> None:
        """Takes rows that are not behind their watermarks, or come without."""
        if not given.rows.num_rows:
            return
        sessions, groups = given.numbered, None
        if given.times is not None:
            sessions, groups = by_session(self._partials, sessions, given.times, self._gap_us)
        self._take(sessions, given.rows, groups)

    def _take_behind(self, given: _Given, watermarks: Ints) -> None:
        """Merges rows that are behind their watermarks, each as a session of its own, into the live sessions that had
        not ended by then. Only for keys with sessions that had, this is decided row by row."""
        sessions = given.numbered
        if given.times is not None:
            sessions = by_row(self._partials, sessions, given.times, self._gap_us)
        sessions = with_groups(sessions, self._partials.keys, self.ctx.key_groups)
        open_from = np.maximum(watermarks, min(self._reached, MAX_TIME - 1) + 1)
        open_from = np.maximum(open_from, MIN_TIME + self._lateness_us) - self._lateness_us
        keys = group([sessions.column(key) for key in self._partials.keys], sessions.num_rows)
        latest = np.full(keys.size, MIN_TIME)
        np.maximum.at(latest, keys.ids, open_from)
        positions, numbers = self._overlaps(sessions)
        with_ended = np.zeros(keys.size, bool)
        with_ended[keys.ids[fixed(sessions.column(END_COLUMN)) < latest[keys.ids]]] = True
        with_ended[keys.ids[positions[self._ends[numbers] < latest[keys.ids[positions]]]]] = True
        in_turn = with_ended[keys.ids]
        if not in_turn.all():
            touched = self._live.distinct(numbers[~in_turn[positions]])
            self._merge(sessions.filter(pa.array(~in_turn)), touched)
        if in_turn.any():
            mask = pa.array(in_turn)
            self._take_in_turn(sessions.filter(mask), given.rows.filter(mask), open_from[in_turn])

    def _take_in_turn(self, sessions: pa.RecordBatch, rows: pa.RecordBatch, open_from: Ints) -> None:
        """Merges sessions of one row each, in their order. A row is late if it, and all that it meets, ends before its
        ``open_from``."""
        keys = group([sessions.column(key) for key in self._partials.keys], sessions.num_rows)
        positions, numbers = self._live.find(sessions)
        live: list[dict[int, SessionSpan]] = [{} for _ in range(keys.size)]
        for key, number in zip(keys.ids[positions].tolist(), numbers.tolist(), strict=True):
            live[key].setdefault(number, SessionSpan(int(self._starts[number]), int(self._ends[number]), [number]))
        spans = SessionSpans([sorted(found.values(), key=lambda span: span.start) for found in live])
        columns = (keys.ids, fixed(sessions.column(START_COLUMN)), fixed(sessions.column(END_COLUMN)), open_from)
        late = ~np.array([spans.take(row, *of) for row, of in enumerate(zip(*map(_listed, columns), strict=True))])
        if late.any():
            self.ctx.count("late_rows", int(fixed(sessions.column(ROWS_COLUMN))[late].sum()))
            self._emit_late(rows.filter(pa.array(late)))
        if spans.changed:
            self._put(*self._gathered(sessions, spans.changed))

    def _gathered(
        self, sessions: pa.RecordBatch, spans: Sequence[SessionSpan]
    ) -> tuple[pa.RecordBatch, int, Groups, Ints, Ints]:
        """The sessions that ``spans`` are merged from, those that were live first, and how many these are; grouped by
        span, with the bounds of each. Removes the live ones from the state."""
        touched = np.array([number for span in spans for number in span.numbers], np.int64)
        new = np.array([row for span in spans for row in span.rows], np.int64)
        parts = sessions.take(pa.array(new, pa.int64()))
        if len(touched):
            parts = concat([self._live.take(touched), parts])
            self._live.remove(touched)
        every = np.arange(len(spans))
        counts = [[len(span.numbers) for span in spans], [len(span.rows) for span in spans]]
        groups = group_integers(np.concatenate([np.repeat(every, count) for count in counts]))
        return parts, len(touched), groups, np.array([s.start for s in spans]), np.array([s.end for s in spans])

    def _take(self, sessions: pa.RecordBatch, rows: pa.RecordBatch, groups: Groups | None) -> None:
        """Merges the sessions of a batch into the live ones; ``rows`` are the rows of these sessions."""
        sessions = with_groups(sessions, self._partials.keys, self.ctx.key_groups)
        touching, touched = self._overlaps(sessions)
        late = self._late(sessions, touching)
        if late.any():
            self.ctx.count("late_rows", int(fixed(sessions.column(ROWS_COLUMN))[late].sum()))
            self._emit_late(rows.filter(pa.array(late if groups is None else late[groups.ids])))
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
            touched = touched[stable_order(self._starts[touched])]
            sessions = concat([self._live.take(touched), sessions])
            self._live.remove(touched)
        keys = group([sessions.column(key) for key in self._partials.keys], sessions.num_rows)
        starts, ends = fixed(sessions.column(START_COLUMN)), fixed(sessions.column(END_COLUMN))
        self._put(sessions, len(touched), *merge_intervals(keys, starts, ends))

    def _put(self, sessions: pa.RecordBatch, live: int, groups: Groups, starts: Ints, ends: Ints) -> None:
        """Adds one session for each group of ``sessions``, with these bounds. The first ``live`` of them were live."""
        bounds = {START_COLUMN: pa.array(starts), END_COLUMN: pa.array(ends)}
        merged = self._partials.merge(sessions, groups, bounds)
        self._note(self._live.append(merged), starts, ends)
        self._became(sessions.slice(0, live), merged)
        if self.in_parts:
            self.changed(merged.filter(pa.array(groups.first >= live)))
        if (ends <= self._reached).any():
            self._emit(merged.filter(pa.array(ends <= self._reached)))
        if self._live.compact() is not None:
            self._renumber()

    def _became(self, before: pa.RecordBatch, after: pa.RecordBatch) -> None:
        """Live sessions have become these, with further rows. Some of ``after`` are new."""

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
        self._drop(due)

    def _drop(self, numbers: Ints) -> None:
        """Removes sessions that can no longer change."""
        if self.in_parts and len(numbers):
            self.changed(self._live.take(numbers, self._partials.keys))
        self._live.remove(numbers)
        if self._live.compact() is not None:
            self._renumber()

    def _emit_late(self, rows: pa.RecordBatch) -> None:
        self.out.emit(rows, LATE_PORT)

    def _emit(self, sessions: pa.RecordBatch) -> None:
        self.out.emit(self._finish(self._in_order(sessions)))

    def _in_order(self, sessions: pa.RecordBatch) -> pa.RecordBatch:
        """Sessions by their ends, then starts, then keys: not in the order in which they are stored."""
        ends, starts = fixed(sessions.column(END_COLUMN)), fixed(sessions.column(START_COLUMN))
        return sessions.take(np.lexsort((hash_rows(sessions, self._partials.keys), starts, ends)))

    def _finish(self, sessions: pa.RecordBatch) -> pa.RecordBatch:
        bounds = {WINDOW_START: sessions.column(START_COLUMN), WINDOW_END: sessions.column(END_COLUMN)}
        return self._partials.finish(sessions, self._schema, bounds)


def by_session(partials: Partials, rows: pa.RecordBatch, times: Ints, gap_us: int) -> tuple[pa.RecordBatch, Groups]:
    """Reduces rows to one partial row per key and session. Also returns the groups of rows."""
    keys = group([rows.column(key) for key in partials.keys], rows.num_rows)
    groups, starts, ends = merge_intervals(keys, times, times + gap_us)
    bounds = {START_COLUMN: pa.array(starts), END_COLUMN: pa.array(ends)}
    return partials.combine(rows, groups, bounds), groups


def by_row(partials: Partials, rows: pa.RecordBatch, times: Ints, gap_us: int) -> pa.RecordBatch:
    """Reduces each row to a partial row of its own."""
    every = np.arange(rows.num_rows)
    bounds = {START_COLUMN: pa.array(times), END_COLUMN: pa.array(times + gap_us)}
    return partials.combine(rows, Groups(every, rows.num_rows, every), bounds)


def _present(column: Column) -> Bools:
    mask = valid(column)
    return np.ones(len(column), bool) if mask is None else mask


def _listed(values: Ints) -> list[int]:
    found: list[int] = values.tolist()
    return found
