"""Aggregates over the last rows of each row: of the last hour, or the last n rows of its key (SQL's ``OVER``).

Every row comes out, with its own columns and the aggregates of the rows of its key up to it: for a span of time those
at most so much earlier, all rows of its own time included (SQL's ``RANGE BETWEEN ... PRECEDING AND CURRENT ROW``); for
a number of rows the last ones in the order of event time, then of arrival (``ROWS``). A row waits until the watermark
has passed its time, so that no row before it is still to come. Rows come out in the order of event time. Late rows are
dropped.

The state holds the waiting rows and, by key, the partial results of the rows that a later row may ask for. Results are
made from ``blocks``, which can be made again from these.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from clonos_py.columns.grouping import Groups, group
from clonos_py.columns.growing import GrowingArray
from clonos_py.columns.ordering import inverse, stable_order
from clonos_py.columns.views import Bools, Ints, concat, fixed, plain
from clonos_py.model.aggregates import Aggregate
from clonos_py.model.hidden import hidden
from clonos_py.model.operators import Operator, OperatorContext, Output
from clonos_py.model.state import GROUP_COLUMN, Chunk, OperatorState
from clonos_py.model.windows import Last, LastRows
from clonos_py.operators.aggregation import Partials
from clonos_py.operators.arrivals import Arrivals
from clonos_py.operators.blocks import Blocks
from clonos_py.operators.event_time_buffer import EventTimeBuffer
from clonos_py.operators.keyed_chunks import grouped_schema, mergeable, owned, stored
from clonos_py.operators.keyed_rows import ROWS_TABLE, KeyedRows
from clonos_py.operators.pairs import NO_ROW
from clonos_py.operators.progress import EventTimeProgress
from clonos_py.operators.window_operator import with_times

_WAITING = "waiting"
_PLACE, _NUMBER = hidden("place"), hidden("number")
"""int64 columns of past rows: the time or number by which a later row finds them, and what ``Blocks`` numbers."""
_FEW_ROWS = 16_384
_DUE_ROWS = 65_536
"""About so many rows come out at a time."""


class Over(Operator):
    """Emits rows of ``schema``, filled by name from the input and the aggregates."""

    def __init__(
        self, keys: Sequence[str], last: Last, aggregates: Sequence[Aggregate], schema: pa.Schema, time_column: str
    ) -> None:
        self._keys = list(keys)
        self._schema = schema
        self._time = time_column
        self._arrivals = Arrivals(aggregates)
        self._made = {aggregate.name for aggregate in aggregates}
        self._past = _Past(keys, last, aggregates)
        read = (aggregate.column for aggregate in aggregates if aggregate.column is not None)
        self._reads_all = any(aggregate.user and aggregate.column is None for aggregate in aggregates)
        passed = (name for name in schema.names if name not in self._made)
        self._columns = list(dict.fromkeys([*keys, time_column, *read, *passed]))

    def open(self, ctx: OperatorContext, out: Output) -> None:
        super().open(ctx, out)
        self._progress = EventTimeProgress()
        self._past.load([])
        self._waiting = EventTimeBuffer(self._time, self._keys, ctx.key_groups)

    @property
    def final(self) -> bool:
        return True

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        rows, times = with_times(rows if self._reads_all else rows.select(self._columns), self._time, self.ctx)
        late = times < self._progress.reached_by(rows, self._keys, self.ctx.key_groups)
        if late.any():
            self.on_late(rows.filter(pa.array(late)))
            rows = rows.filter(pa.array(~late))
        self._waiting.add(rows)

    def on_late(self, rows: pa.RecordBatch) -> None:
        """Counts rows that are dropped."""
        self.ctx.count("late_rows", rows.num_rows)

    def on_watermark(self, watermark: int) -> int:
        due = self._waiting.take(watermark)
        for rows in () if due is None else self._parts(due):
            self._emit(rows)
        self._progress.advance(max(watermark, self._progress.reached))
        self._past.expire(self._progress.reached)
        return watermark

    def _parts(self, due: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Rows in order, in parts that do not part rows of equal times."""
        times, start = fixed(due.column(self._time)), 0
        while start < due.num_rows:
            last = min(start + _DUE_ROWS, due.num_rows) - 1
            stop = int(times.searchsorted(times[last], side="right"))
            yield due.slice(start, stop - start)
            start = stop

    def _emit(self, rows: pa.RecordBatch) -> None:
        results = self._past.take(self._arrivals.numbered(rows), fixed(rows.column(self._time)))
        passed = {name: rows.column(name) for name in self._schema.names if name not in self._made}
        self.out.emit(self._past.partials.finish(results, self._schema, passed))

    def tables(self, inputs: Sequence[pa.Schema]) -> Mapping[str, pa.Schema]:
        return {
            _WAITING: grouped_schema(inputs[0], None if self._reads_all else self._columns),
            ROWS_TABLE: grouped_schema(self._past.partials.stored_schema(inputs[0], [_PLACE, _NUMBER])),
        }

    def snapshot(self) -> OperatorState:
        tables = {_WAITING: self._waiting.chunks(), ROWS_TABLE: list(self._past.chunks)}
        return OperatorState(tables, self._progress.values(self.ctx.groups) | self._arrivals.values())

    def restore(self, parts: Sequence[OperatorState]) -> None:
        self._progress.restore(parts, self.ctx.groups, self.ctx.key_groups)
        self._arrivals.restore(parts)
        self._waiting.load(owned(stored(parts, _WAITING), self.ctx.groups))
        self._past.load(list(owned(stored(parts, ROWS_TABLE), self.ctx.groups)))


class _Past:
    """The partial results of the rows that have come out, as far as later rows may ask for them."""

    def __init__(self, keys: Sequence[str], last: Last, aggregates: Sequence[Aggregate]) -> None:
        self._keys = list(keys)
        self._by_rows = isinstance(last, LastRows)
        self._reach = last.rows - 1 if isinstance(last, LastRows) else last.span_us
        self.partials = Partials(keys, aggregates)
        self._results = Partials((), aggregates)

    def load(self, chunks: Sequence[Chunk]) -> None:
        """Replaces all rows by those of a snapshot."""
        self.chunks = list(chunks)
        self._blocks = Blocks(self._results, self._reach)
        self._known = KeyedRows(self._keys)
        self._latest = GrowingArray(np.int64)
        """By key, in the order of ``_known``: its last row in ``_blocks``; ``NO_ROW`` if it has none."""
        self._numbers = GrowingArray(np.int64)
        """By row of ``_blocks``."""
        if chunks:
            rows = concat([chunk.rows for chunk in chunks])
            keys = self._keys_of(rows)
            order = stable_order(keys)
            rows = rows.take(order)
            self._add(rows, keys[order], fixed(rows.column(_PLACE)), fixed(rows.column(_NUMBER)))
        self._kept = self._blocks.rows

    def take(self, rows: pa.RecordBatch, times: Ints) -> pa.RecordBatch:
        """The results for each of these rows, which are added. They are in order of time."""
        keys = self._keys_of(rows)
        order = stable_order(keys)
        keys, rows = keys[order], rows.take(order)
        places, numbers = self._located(keys, times[order])
        each = Groups(np.arange(len(order)), len(order), np.arange(len(order)))
        partial = self.partials.combine(rows, each, {_PLACE: pa.array(places), _NUMBER: pa.array(numbers)})
        first = self._blocks.rows
        self._add(partial, keys, places, numbers)
        self._keep(partial.append_column(pa.field(GROUP_COLUMN, pa.int32()), rows.column(GROUP_COLUMN)))
        is_end = np.append((keys[1:] != keys[:-1]) | (places[1:] != places[:-1]), True)
        ends = np.flatnonzero(is_end)
        found = self._blocks.up_to(first + ends, places[ends] - self._reach)
        return pa.record_batch(found).take((np.cumsum(is_end) - is_end)[inverse(order)])

    def _keys_of(self, rows: pa.RecordBatch) -> Ints:
        """By row: the number of its key. New keys are added."""
        groups = group([rows.column(key) for key in self._keys], rows.num_rows)
        asked = pa.record_batch({name: plain(rows.column(name)) for name in (*self._keys, GROUP_COLUMN)})
        asked = asked.take(groups.first)
        found, known = self._known.find(asked)
        numbers = np.full(groups.size, NO_ROW)
        numbers[found] = known
        new = np.flatnonzero(numbers == NO_ROW)
        if len(new):
            numbers[new] = self._known.append(asked.take(new))
            self._latest.append(np.full(len(new), NO_ROW))
        return numbers[groups.ids]

    def _located(self, keys: Ints, times: Ints) -> tuple[Ints, Ints]:
        """The places and numbers of new rows, by key and in their order. Numbers begin again with a row that has none
        before it within reach."""
        begins = np.flatnonzero(_begins(keys))
        latest = self._latest.values[keys[begins]]
        new = latest == NO_ROW
        next_number = np.where(new, 0, _at(self._numbers, latest) + 1)
        restarts = _begins(keys)
        if not self._by_rows:
            restarts[1:] |= times[1:] - self._reach > times[:-1]
            alone = new | (times[begins] - self._reach > _at(self._blocks.places, latest))
            next_number[alone] = 0
        starts, part = np.flatnonzero(restarts), np.cumsum(restarts) - 1
        firsts = np.zeros(len(starts), np.int64)
        firsts[part[begins]] = next_number
        numbers = firsts[part] + np.arange(len(keys)) - starts[part]
        return (numbers if self._by_rows else times), numbers

    def _add(self, partial: pa.RecordBatch, keys: Ints, places: Ints, numbers: Ints) -> None:
        """Adds rows, by key and in their order."""
        rows, begins = self._blocks.rows + np.arange(len(keys)), _begins(keys)
        before = rows - 1
        before[begins] = self._latest.values[keys[begins]]
        hidden_or_key = {_PLACE, _NUMBER, GROUP_COLUMN, *self._keys}
        values = {name: partial.column(name) for name in partial.schema.names if name not in hidden_or_key}
        self._blocks.append(values, places, numbers, before)
        self._numbers.append(numbers)
        ends = np.append(begins[1:], True)
        self._latest.values[keys[ends]] = rows[ends]

    def _keep(self, rows: pa.RecordBatch) -> None:
        self.chunks.append(Chunk(rows))
        if count := mergeable(self.chunks):
            self.chunks[-count:] = [Chunk(concat([chunk.rows for chunk in self.chunks[-count:]]))]

    def expire(self, reached: int) -> None:
        """Drops the rows that no row from ``reached`` on asks for, once they may be as many as the others."""
        if self._blocks.rows > 2 * self._kept + _FEW_ROWS:
            left = [_without(chunk, self._is_asked_for(chunk.rows, reached)) for chunk in self.chunks]
            self.load([chunk for chunk in left if chunk is not None])

    def _is_asked_for(self, rows: pa.RecordBatch, reached: int) -> Bools:
        last: Ints | int = reached
        if self._by_rows:
            last = self._blocks.places.values[self._latest.values[self._keys_of(rows)]] + 1
        found: Bools = fixed(rows.column(_PLACE)) >= last - self._reach
        return found


def _begins(keys: Ints) -> Bools:
    """Which rows are the first of their key, which is not empty."""
    return np.append(True, keys[1:] != keys[:-1])


def _at(values: GrowingArray, rows: Ints) -> Ints:
    """The values of rows; anything for ``NO_ROW``."""
    found: Ints = values.values[rows] if len(values.values) else np.zeros(len(rows), np.int64)
    return found


def _without(chunk: Chunk, asked_for: Bools) -> Chunk | None:
    """The chunk without rows that nothing asks for, unless these are few: a chunk may be stored already."""
    count = int(np.count_nonzero(asked_for))
    if 2 * count >= chunk.rows.num_rows:
        return chunk
    return Chunk(chunk.rows.filter(pa.array(asked_for))) if count else None
