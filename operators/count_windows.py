"""Windows of a number of rows of a key, in their order of arrival: aggregates, and the first rows of each window.

The state of a key is the part of its windows that are open: for aggregates one partial row for every ``every`` rows,
for the first rows of a window all rows. Each has the number of its first row, counted from the first row of the key's
oldest open window. A key without an open window has no state. A window is emitted with its last row, and the windows
that a batch completes are emitted in the order of their last rows. So results depend on the order of rows alone, not on
how they are cut into batches.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from clonos_py.columns.grouping import Groups, group
from clonos_py.columns.index import expand
from clonos_py.columns.ordering import order_by, stable_order
from clonos_py.columns.views import Bools, Ints, concat, fixed
from clonos_py.model.aggregates import Aggregate
from clonos_py.model.hidden import hidden
from clonos_py.model.state import OperatorState
from clonos_py.model.tables import SortKey
from clonos_py.model.windows import Counted
from clonos_py.operators.aggregation import ROWS_COLUMN, Partials
from clonos_py.operators.arrivals import Arrivals
from clonos_py.operators.footprints import KeyedParts
from clonos_py.operators.keyed_chunks import grouped_schema, with_groups
from clonos_py.operators.keyed_rows import KeyedRows
from clonos_py.operators.ranking import Ranking, with_ranks

NUMBER_COLUMN = hidden("number")
"""int64 column of the state: the number of the first row that a stored row stands for."""
_GATHERED_ROWS = 1 << 18
"""The most stored rows, or those of one window, from which windows are made at a time."""


class _Parts(NamedTuple):
    """Rows of the state, and the key of each, a number within a batch."""

    rows: pa.RecordBatch
    keys: Ints

    @property
    def numbers(self) -> Ints:
        return fixed(self.rows.column(NUMBER_COLUMN))

    def where(self, chosen: Bools) -> _Parts:
        return _Parts(self.rows.filter(pa.array(chosen)), self.keys[chosen])


class _Windows(NamedTuple):
    """Windows of the rows of a batch: by window, its key, and the number of its first row."""

    keys: Ints
    starts: Ints

    def some(self, chosen: Ints) -> _Windows:
        return _Windows(self.keys[chosen], self.starts[chosen])


class CountWindowOperator(KeyedParts):
    """Decides which windows a batch completes. ``unit``: the number of rows that a stored row stands for, at most.
    Its parts are keys, with their open windows."""

    def __init__(self, keys: Sequence[str], window: Counted, unit: int) -> None:
        self._keys = tuple(keys)
        self._window = window
        self._unit = unit
        self._open = KeyedRows(keys)
        super().__init__(keys, self._open)

    @property
    def final(self) -> bool:
        return self._window.incomplete

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        if not rows.num_rows:
            return
        keys = group([rows.column(key) for key in self._keys], rows.num_rows)
        old, stored = self._stored(rows.take(keys.first))
        first, counts = self._extents(old, keys.size)
        order = stable_order(keys.ids)
        begins = np.searchsorted(keys.ids[order], np.arange(keys.size))
        numbers = np.empty(rows.num_rows, np.int64)
        numbers[order] = np.arange(rows.num_rows) - begins[keys.ids[order]] + counts[keys.ids[order]]
        kept, new = self._added(old, rows, keys.ids, numbers)
        parts = new if old is None else _Parts(concat([old.rows.filter(pa.array(kept)), new.rows]),
                                               np.concatenate([old.keys[kept], new.keys]))  # fmt: skip
        complete = self._complete(first, counts + np.bincount(keys.ids, minlength=keys.size))
        if len(complete.keys):
            last = complete.starts + self._window.size - 1
            ended_by = order[begins[complete.keys] + last - counts[complete.keys]]
            self._emit_windows(parts, complete.some(stable_order(ended_by)))
            first = first + np.bincount(complete.keys, minlength=keys.size) * self._window.every
        if old is not None:
            self._open.remove(stored[~kept | (old.numbers < first[old.keys])])
        self._open.append(new.where(new.numbers >= first[new.keys]).rows)
        self._open.compact()
        if self.in_parts:
            opened_or_closed = (counts == 0) | (np.bincount(complete.keys, minlength=keys.size) > 0)
            if opened_or_closed.any():
                columns = self._keys or rows.schema.names[:1]  # without columns there would be no rows
                self.changed(rows.select(columns).take(keys.first[opened_or_closed]))

    def on_end(self) -> None:
        numbers = self._open.all_numbers()
        if not (self._window.incomplete and len(numbers)):
            return
        if self._keys:
            numbers = numbers[order_by(self._open.places(numbers, self._keys))]
        rows = self._open.take(numbers)
        keys = group([rows.column(key) for key in self._keys], rows.num_rows)
        parts = _Parts(rows, keys.ids)
        first, counts = self._extents(parts, keys.size)
        begun = (counts - first + self._window.every - 1) // self._window.every
        self._emit_windows(parts, self._spread(first, begun))
        self._open.remove(numbers)
        self._open.compact()

    def snapshot(self) -> OperatorState:
        return self._open.snapshot(self.values())

    def restore(self, parts: Sequence[OperatorState]) -> None:
        self.restore_parts(parts, lambda: self._open.restore(parts, self.ctx.groups))

    def _stored(self, keys: pa.RecordBatch) -> tuple[_Parts | None, Ints]:
        """The stored rows of these keys, and their numbers in the state."""
        positions, stored = self._open.find(keys)
        return (_Parts(self._open.take(stored), positions) if len(stored) else None), stored

    def _extents(self, parts: _Parts | None, keys: int) -> tuple[Ints, Ints]:
        """By key: the number of its first stored row, and the number that its next row will have."""
        first, counts = np.zeros(keys, np.int64), np.zeros(keys, np.int64)
        if parts is not None:
            first[parts.keys] = np.iinfo(np.int64).max
            np.minimum.at(first, parts.keys, parts.numbers)
            np.maximum.at(counts, parts.keys, parts.numbers + self._rows_of(parts.rows))
        return first, counts

    def _complete(self, first: Ints, counts: Ints) -> _Windows:
        """The windows that have all of their rows."""
        size, every = self._window.size, self._window.every
        return self._spread(first, np.maximum((counts - size - first) // every + 1, 0))

    def _spread(self, first: Ints, windows: Ints) -> _Windows:
        """By key, so many windows, the first of which starts with the row ``first``."""
        keys, nth = expand(first // self._window.every, windows)
        return _Windows(keys, nth * self._window.every)

    def _emit_windows(self, parts: _Parts, windows: _Windows) -> None:
        """Emits windows in their order. ``parts`` are all stored rows of their keys."""
        order = order_by([parts.keys, parts.numbers])
        keys, numbers = parts.keys[order], parts.numbers[order]
        begins = np.searchsorted(keys, windows.keys)
        ends = np.searchsorted(keys, windows.keys, side="right")
        froms = begins + (windows.starts - numbers[begins]) // self._unit
        lengths = np.minimum(ends - froms, self._window.size // self._unit)
        at_once = max(_GATHERED_ROWS // (self._window.size // self._unit), 1)
        for start in range(0, len(froms), at_once):
            some = slice(start, start + at_once)
            ids, places = expand(froms[some], lengths[some])
            firsts = np.cumsum(lengths[some]) - lengths[some]
            rows = parts.rows.take(order[places])
            for results in self._results(rows, Groups(ids, len(firsts), firsts)):
                self.out.emit(results)

    @abstractmethod
    def _rows_of(self, stored: pa.RecordBatch) -> Ints | int:
        """How many rows each stored row stands for."""

    @abstractmethod
    def _added(self, old: _Parts | None, rows: pa.RecordBatch, keys: Ints, numbers: Ints) -> tuple[Bools, _Parts]:
        """Adds rows, with the key and the number of each, to the stored rows ``old`` of their keys. Returns which of
        these stay as they are, and those that are new or replace others."""

    @abstractmethod
    def _results(self, rows: pa.RecordBatch, windows: Groups) -> Iterator[pa.RecordBatch]:
        """The results of windows from their stored rows, in the order of windows."""


class CountWindowAggregate(CountWindowOperator):
    """Emits one result per key and window. ``schema`` is filled by name from the keys and the aggregates."""

    def __init__(
        self, keys: Sequence[str], window: Counted, aggregates: Sequence[Aggregate], schema: pa.Schema
    ) -> None:
        super().__init__(keys, window, window.every)
        self._partials = Partials(keys, aggregates)
        self._schema = schema
        self._arrivals = Arrivals(aggregates)

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        super().on_rows(self._arrivals.numbered(rows), side)

    def tables(self, inputs: Sequence[pa.Schema]) -> Mapping[str, pa.Schema]:
        return self.tables_of(grouped_schema(self._partials.stored_schema(inputs[0], [NUMBER_COLUMN])))

    def values(self) -> dict[str, Any]:
        return self._arrivals.values()

    def restore(self, parts: Sequence[OperatorState]) -> None:
        super().restore(parts)
        self._arrivals.restore(parts)

    def _rows_of(self, stored: pa.RecordBatch) -> Ints:
        return fixed(stored.column(ROWS_COLUMN))

    def _added(self, old: _Parts | None, rows: pa.RecordBatch, keys: Ints, numbers: Ints) -> tuple[Bools, _Parts]:
        """Only the last partial row of a key may be incomplete, and gets the next rows."""
        starts = numbers // self._unit * self._unit
        found = group([keys, starts], rows.num_rows)
        partial = self._partials.combine(rows, found, {NUMBER_COLUMN: pa.array(starts[found.first])})
        new = _Parts(with_groups(partial, self._keys, self.ctx.key_groups), keys[found.first])
        if old is None:
            return np.zeros(0, bool), new
        kept = self._rows_of(old.rows) == self._unit
        if kept.all():
            return kept, new
        both = old.where(~kept)
        both = _Parts(concat([both.rows, new.rows]), np.concatenate([both.keys, new.keys]))
        found = group([both.keys, both.numbers], len(both.keys))
        return kept, _Parts(self._partials.merge(both.rows, found), both.keys[found.first])

    def _results(self, rows: pa.RecordBatch, windows: Groups) -> Iterator[pa.RecordBatch]:
        merged = rows if windows.size == rows.num_rows else self._partials.merge(rows, windows)
        yield self._partials.finish(merged, self._schema, {})


class CountWindowTop(CountWindowOperator):
    """Emits the first n rows of each key and window. ``schema`` is filled by name from the input and ``rank`` (1, 2,
    ...). Rows that are equal in order are ranked by arrival."""

    def __init__(
        self,
        keys: Sequence[str],
        window: Counted,
        n: int,
        order: Sequence[SortKey],
        schema: pa.Schema,
        rank: str | None = None,
    ) -> None:
        super().__init__(keys, window, 1)
        self._n = n
        self._schema = schema
        self._rank = rank
        self._ranking = Ranking(keys, order)
        passed = [name for name in schema.names if name != rank]
        self._columns = list(dict.fromkeys([*self._ranking.columns, *passed]))

    def tables(self, inputs: Sequence[pa.Schema]) -> Mapping[str, pa.Schema]:
        rows = inputs[0].append(pa.field(NUMBER_COLUMN, pa.int64()))
        return self.tables_of(grouped_schema(rows, [*self._columns, NUMBER_COLUMN]))

    def _rows_of(self, stored: pa.RecordBatch) -> int:
        return 1

    def _added(self, old: _Parts | None, rows: pa.RecordBatch, keys: Ints, numbers: Ints) -> tuple[Bools, _Parts]:
        numbered = rows.select(self._columns).append_column(pa.field(NUMBER_COLUMN, pa.int64()), pa.array(numbers))
        new = _Parts(with_groups(numbered, self._keys, self.ctx.key_groups), keys)
        return np.ones(0 if old is None else len(old.keys), bool), new

    def _results(self, rows: pa.RecordBatch, windows: Groups) -> Iterator[pa.RecordBatch]:
        ranked = self._ranking.within(windows.ids, rows)
        first = ranked.ranks < self._n
        yield with_ranks(rows.take(ranked.order[first]), self._rank, ranked.ranks[first], self._schema)
