"""Incremental join of two streams: over all their rows (Nexmark q3), or within time bounds (interval join).

Each row is joined with the rows of the other side that arrived before it. So every pair is found once, by its later
row. Pairs are emitted in the order of the arriving rows, then in that of the earlier rows. The state holds the rows of
both sides.

With bounds, ``lower <= right.time - left.time <= upper``, rows expire. A left row of time t expires when the watermark
passes t + upper, a right row when it passes t - lower. The upper bound may also be a time column of the left row,
``right.time <= left.end``; then the left row expires when the watermark passes that time. The watermark is the combined
one of both inputs. So the pairs do not depend on the order of rows, as long as these are no more out of order than
their sources declare.

An outer join gives a row without a match when the watermark says that none can come, in the order of arrival; a row
with a null key at once. A semi join gives a left row with its first match.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from clonos_py.columns.keys import hash_rows
from clonos_py.columns.matching import equal_rows, with_keys
from clonos_py.columns.views import Bools, Ints, fixed
from clonos_py.model.errors import GraphError
from clonos_py.model.joins import Bounds, JoinColumns, JoinType
from clonos_py.model.operators import Operator
from clonos_py.model.state import OperatorState
from clonos_py.model.tables import FirstOf
from clonos_py.model.times import MAX_TIME, MIN_TIME
from clonos_py.operators.history import History
from clonos_py.operators.keyed_chunks import grouped, grouped_schema, owned, parted, stored
from clonos_py.operators.pairs import EMIT_ROWS, Pairs, among, without_match
from clonos_py.operators.ranking import Ranking
from clonos_py.operators.row_filters import matchable, on_time
from clonos_py.operators.row_flags import flagged, owned_flagged, packed
from clonos_py.operators.unmatched import Unmatched

_SIDES = ("left", "right")
_FEW_ROWS = 16_384


class _First:
    """Selects the pairs of a batch that are among the first of their keys. ``pairs`` builds the needed columns."""

    def __init__(self, first: FirstOf, columns: JoinColumns, schema: pa.Schema) -> None:
        self._ranking, self._n = Ranking(first.keys, first.order), first.n
        names = self._ranking.columns
        fields: list[Any] = [schema.field(name) for name in names]
        self.pairs = Pairs(tuple(column for column in columns if column[0] in names), pa.schema(fields))

    def among(self, pairs: pa.RecordBatch) -> Ints:
        return self._ranking.first(pairs, self._n)


class HistoryJoin(Operator):
    """Joins on equal keys (null equals nothing).

    With ``bounds`` = (lower, upper), rows form a pair only if the right one is at least ``lower`` and at most ``upper``
    later than the left one, or not later than the left row's column ``upper``. Bounds require the time columns. Rows
    behind the watermark, whose partners may have expired, are then dropped and counted as ``late_rows``.

    ``how``: which rows are in the result. If rows without a match are, there must be bounds. The watermark is held back
    where it would pass the times of rows to come: those of left rows, or of right rows in a right join. With an end in
    a column of the left row, and in a full join, no column is in the order that event times need.

    ``first``: the next operator needs only the first pairs of each key, whose columns are in ``schema``. Then only the
    pairs that are among the first of their batch are built.
    """

    def __init__(
        self,
        left_keys: Sequence[str],
        right_keys: Sequence[str],
        columns: JoinColumns,
        schema: pa.Schema,
        bounds: Bounds | None = None,
        left_time: str | None = None,
        right_time: str | None = None,
        first: FirstOf | None = None,
        how: JoinType = JoinType.INNER,
    ) -> None:
        if bounds is not None and (left_time is None or right_time is None):
            raise GraphError("a join that expires rows needs an event time on both sides; give their sources one")
        self._keys = (list(left_keys), list(right_keys))
        self._times = (None, None) if bounds is None else (left_time, right_time)
        self._bounds = bounds
        self._how = how
        self._pairs = Pairs(columns, schema, how, self._keys)
        self._first = None if first is None else _First(first, columns, schema)
        end = bounds[1] if bounds is not None and isinstance(bounds[1], str) else None
        self._timing = tuple([t for t in times if t] for times in ((self._times[0], end), (self._times[1],)))
        self._kept = tuple(self._pairs.needed(side, *self._keys[side], *self._timing[side]) for side in (0, 1))
        self._histories = tuple(History(keys) for keys in self._keys)
        marks = how.unmatched[0] or how is JoinType.SEMI, how.unmatched[1]
        self._unmatched = tuple(Unmatched() if marked else None for marked in marks)
        self._held_back_us = _held_back_us(how, bounds)
        self._expired, self._rows_kept = MIN_TIME, 0

    @property
    def final(self) -> bool:
        return self._bounds is not None

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        alone = self._how.unmatched[side]
        rows = matchable(rows, self._keys[side], self._timing[side], self.ctx.count, alone)
        time = self._times[side]
        rows = rows if time is None else on_time(rows, time, self.ctx)
        rows = self._with_keys(rows, side) if alone else rows
        if not rows.num_rows:
            return
        hashes = hash_rows(rows, self._keys[side])
        rows = grouped(rows.select(self._kept[side]), hashes, self.ctx.key_groups)
        positions, numbers = self._histories[1 - side].probe(hashes)
        if len(positions):
            positions, numbers = self._matches(rows, side, positions, numbers)
            self._emit(rows, side, positions, numbers)
        self._histories[side].append(rows, hashes)
        if (own := self._unmatched[side]) is not None:
            own.append(among(positions, rows.num_rows), self._last_match(rows, side))

    def _with_keys(self, rows: pa.RecordBatch, side: int) -> pa.RecordBatch:
        """The rows that may have a match. Emits the others, which have a null key."""
        kept = with_keys(rows, self._keys[side])
        if kept is None:
            return rows
        self._emit_alone(rows, side, without_match(kept, rows.num_rows))
        return rows.take(kept)

    def on_watermark(self, watermark: int) -> int:
        """Emits the rows that got no match. Removes, from time to time, rows that no on-time row can match any more."""
        self._emit_unmatched(watermark)
        match self._bounds:
            case (lower, str(end)) if self._rows > 2 * self._rows_kept + _FEW_ROWS:
                self._expire((end, watermark), (self._times[1], watermark + lower))
            case (lower, int(upper)) if watermark - self._expired >= max(abs(lower), abs(upper)) // 8:
                self._expire((self._times[0], watermark - upper), (self._times[1], watermark + lower))
                self._expired = watermark
        return watermark if watermark == MAX_TIME else max(MIN_TIME, watermark - self._held_back_us)

    def _emit_unmatched(self, watermark: int) -> None:
        for side, unmatched in enumerate(self._unmatched):
            if unmatched is not None and self._how.unmatched[side]:
                self._emit_numbered(unmatched.pop(watermark), side)

    def _expire(self, *before: tuple[str | None, int]) -> None:
        for side, (time, earliest) in enumerate(before):
            kept = self._histories[side].expire(str(time), earliest)
            if kept is not None and (unmatched := self._unmatched[side]) is not None:
                self._mark(side, unmatched.settled[kept])
        self._rows_kept = self._rows

    @property
    def _rows(self) -> int:
        return sum(history.rows for history in self._histories)

    def tables(self, inputs: Sequence[pa.Schema]) -> Mapping[str, pa.Schema]:
        return {name: grouped_schema(inputs[side], self._kept[side]) for side, name in enumerate(_SIDES)}

    def snapshot(self) -> OperatorState:
        tables = {name: self._histories[side].chunks() for side, name in enumerate(_SIDES)}
        values: dict[str, Any] = {"expired": self._expired, "rows_kept": self._rows_kept}
        for name, unmatched in zip(_SIDES, self._unmatched, strict=True):
            if unmatched is not None:
                values[_settled_value(name)] = packed(unmatched.settled)
        return OperatorState(tables, values)

    def restore(self, parts: Sequence[OperatorState]) -> None:
        """Of one former instance it also takes when rows were removed last: then it removes the next ones when that
        instance would have, and its snapshots have the same chunks."""
        alone = parts[0].values if len(parts) == 1 else {}
        self._expired, self._rows_kept = alone.get("expired", MIN_TIME), alone.get("rows_kept", 0)
        for side, name in enumerate(_SIDES):
            if self._unmatched[side] is None:
                self._histories[side].load(owned(stored(parts, name), self.ctx.groups))
                continue
            found = (each for part in parts for each in flagged(part, name, _settled_value(name)))
            kept = [own for each in found if (own := owned_flagged(*each, self.ctx.groups)) is not None]
            self._histories[side].load(chunk for chunk, _ in kept)
            self._mark(side, np.concatenate([np.zeros(0, bool), *(settled for _, settled in kept)]))

    def _mark(self, side: int, settled: Bools) -> None:
        """Sets which of all rows of a side are settled."""
        unmatched, history = self._unmatched[side], self._histories[side]
        assert unmatched is not None
        last = None
        if self._how.unmatched[side]:
            waiting = np.flatnonzero(~settled)
            last = np.full(len(settled), MAX_TIME)
            if len(waiting):
                last[waiting] = self._last_match(history.take(waiting, self._timing[side]), side)
        unmatched.load(settled, last)

    def _last_match(self, rows: pa.RecordBatch, side: int) -> Ints | None:
        """By row: the latest event time of a row of the other side that matches; None where that is never asked."""
        if not self._how.unmatched[side]:
            return None
        assert self._bounds is not None
        lower, upper = self._bounds
        if side:
            return fixed(rows.column(str(self._times[1]))) - lower
        return fixed(rows.column(upper)) if isinstance(upper, str) else fixed(rows.column(str(self._times[0]))) + upper

    def _matches(self, rows: pa.RecordBatch, side: int, positions: Ints, numbers: Ints) -> tuple[Ints, Ints]:
        """The candidates that are pairs: row ``positions[i]`` with row ``numbers[i]`` of the other side. The compared
        columns are read first; most other columns are read for actual pairs only."""
        compared = [*self._keys[1 - side], *self._timing[1 - side]]
        same = self._are_pairs(rows, side, positions, self._histories[1 - side].take(numbers, compared))
        return positions[same], numbers[same]

    def _emit(self, rows: pa.RecordBatch, side: int, positions: Ints, numbers: Ints) -> None:
        """Emits what these pairs give."""
        others = self._unmatched[1 - side]
        if self._how is JoinType.SEMI:
            if others is None:
                self._emit_alone(rows, 0, np.unique(positions))
            else:
                self._emit_numbered(others.settled_first(numbers), 0)
        elif others is not None:
            others.settle(numbers)
        if not self._how.pairs:
            return
        if self._first is not None and len(numbers):
            kept = self._first.among(self._pair_rows(self._first.pairs, rows, side, positions, numbers))
            positions, numbers = positions[kept], numbers[kept]
        for start in range(0, len(numbers), EMIT_ROWS):
            part = slice(start, start + EMIT_ROWS)
            self.out.emit(self._pair_rows(self._pairs, rows, side, positions[part], numbers[part]))

    def _emit_alone(self, rows: pa.RecordBatch, side: int, numbers: Ints | None = None) -> None:
        """Emits rows of a side, all or those with these numbers, without a row of the other one."""
        for batch in self._pairs.alone(rows, side, numbers):
            self.out.emit(batch)

    def _emit_numbered(self, numbers: Ints, side: int) -> None:
        """Emits stored rows of a side without a row of the other one."""
        for part in parted(numbers):
            self._emit_alone(self._rows_for(self._pairs, side, part), side)

    def _pair_rows(
        self, pairs: Pairs, rows: pa.RecordBatch, side: int, positions: Ints, numbers: Ints
    ) -> pa.RecordBatch:
        batches: list[pa.RecordBatch] = [rows, self._rows_for(pairs, 1 - side, numbers)]
        places = [positions, None]
        order = 1 if side == 0 else -1
        return pairs.batch(batches[::order], places[::order])

    def _rows_for(self, pairs: Pairs, side: int, numbers: Ints) -> pa.RecordBatch:
        """Stored rows of a side, with the columns that ``pairs`` needs."""
        return self._histories[side].take(numbers, pairs.needed(side) or self._keys[side])

    def _are_pairs(self, rows: pa.RecordBatch, side: int, positions: Ints, candidates: pa.RecordBatch) -> Bools:
        """Whether row i of ``candidates`` forms a pair with row ``positions[i]``."""
        everyone = np.arange(candidates.num_rows)
        same = equal_rows(rows, self._keys[side], positions, candidates, self._keys[1 - side], everyone)
        if self._bounds is not None:
            ours = fixed(rows.column(str(self._times[side])))[positions]
            theirs = fixed(candidates.column(str(self._times[1 - side])))
            lower, upper = self._bounds
            left, right = (ours, theirs) if side == 0 else (theirs, ours)
            if not isinstance(upper, str):
                end = left + upper
            else:
                end = fixed(rows.column(upper))[positions] if side == 0 else fixed(candidates.column(upper))
            same &= (left + lower <= right) & (right <= end)
        return same


def _held_back_us(how: JoinType, bounds: Bounds | None) -> int:
    """By how much a row may be behind the watermark with which it is emitted, if it has the time of its left row, or of
    its right row in a right join."""
    if bounds is None or how in (JoinType.INNER, JoinType.FULL):
        return 0
    lower, upper = bounds
    if how is JoinType.RIGHT:
        return max(0, -lower)
    return max(0, upper) if isinstance(upper, int) else 0


def _settled_value(table: str) -> str:
    return f"{table}.settled"
