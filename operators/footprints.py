"""The state of keys saved in parts (CEC): a log of footprints, and the rebuild from them.

A *footprint* is the state of one key at a position, that is, after so many of the task's input events. Footprints are
written in batches: those of keys that were opened since the last batch (G_open), of keys that are saved again because
theirs are the oldest (G_check), and marks of keys that have no state any more (R). The newest footprint of a key
decides. The *extent* is the log from the oldest footprint that decides on; batches before it are dropped.

A rebuild reads the extent and takes the last footprint of each key; the paper reads backwards until it has one of each,
and the extent begins just there. Then the input since the position of the oldest batch comes again, and each row counts
only if it comes behind the footprint of its key (CEC, sections 2 and 3). Positions are numbers of events, not times, so
there are no ties.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from clonos_py.columns.grouping import group
from clonos_py.columns.views import Bools, Ints, concat, fixed, plain
from clonos_py.model.errors import DAMAGED_REMEDY, CheckpointError, UnreadableCheckpointError
from clonos_py.model.hidden import hidden
from clonos_py.model.operators import Extent, PartwiseOperator
from clonos_py.model.state import GROUP_COLUMN, Chunk, OperatorState
from clonos_py.operators.keyed_chunks import with_groups
from clonos_py.operators.keyed_rows import ROWS_TABLE, KeyedRows

OPEN_TABLE = "footprints.open"
"""The rows of keys with state."""
CLOSED_TABLE = "footprints.closed"
"""The keys without state."""
_LOG = "footprints.log"
_KEYS = "footprints.keys"
_AT = hidden("at")
"""int64 column: the number of a batch, or a position."""
_ANY = hidden("any")
"""Column without meaning: a batch of the keys of an operator without keys has rows, too."""


class FootprintPlace(NamedTuple):
    """Where a batch of footprints is written."""

    position: int
    key_groups: int
    values: Mapping[str, Any]


@dataclass
class _Batch:
    """A batch of the log. ``live``: how many of its footprints of keys with state decide."""

    number: int
    position: int
    open: Chunk | None
    closed: Chunk | None
    records: int
    live: int
    values: Mapping[str, Any]
    """The state besides the rows at this position, as far as a rebuild begins with it."""


class FootprintLog:
    """The log of one operator instance, whose state is in ``rows``."""

    def __init__(self, keys: Sequence[str], rows: KeyedRows) -> None:
        self.keys, self._rows = list(keys), rows
        self.clear()

    def clear(self) -> None:
        self._log: deque[_Batch] = deque()
        self._saved = KeyedRows(self.keys)
        """By key with a footprint that decides, and with state there: the number of its batch."""
        self._changed: list[pa.RecordBatch] = []
        self._before_check = 0
        """How many of the rows of ``_changed`` are from before the last check."""
        self._all_changed = False
        self._next = self._keys_at_end = 0
        self._until: KeyedRows | None = None
        """During a rebuild, by key with a footprint: its position."""

    # ---- writing

    def changed(self, keys: pa.RecordBatch) -> None:
        """Windows of these keys were opened or closed: their footprints are written with the next batch."""
        if keys.num_rows:
            columns: list[Any] = [*(plain(keys.column(key)) for key in self.keys), pa.nulls(keys.num_rows)]
            self._changed.append(pa.RecordBatch.from_arrays(columns, names=[*self.keys, _ANY]))

    def all_changed(self) -> None:
        """No key has a footprint."""
        self.clear()
        self._all_changed = True

    def save(self, at: FootprintPlace) -> None:
        """Writes the footprints of keys that were opened, and marks those that were closed. A key that was opened and
        closed in between needs none, unless a check came in between, too: the extent may begin there, with that key
        open."""
        if self._all_changed:
            self._all_changed, self._changed = False, []
            if self._rows.live_row_count:
                self.changed(self._rows.take(self._rows.all_numbers(), [*self.keys, GROUP_COLUMN]))
        if self._changed:
            changed, self._changed = concat(self._changed), []
            first = group([changed.column(key) for key in self.keys], changed.num_rows).first
            self._write(at, changed.take(first), first < self._before_check)
        self._before_check = 0

    def check(self, at: FootprintPlace, keys: int) -> None:
        """Writes new footprints of so many keys, those with the oldest ones."""
        oldest = self._saved.all_numbers()[:keys]
        if len(oldest):
            self._write(at, self._saved.take(oldest), np.zeros(len(oldest), bool))
            self._before_check = sum(keys.num_rows for keys in self._changed)

    def _write(self, at: FootprintPlace, keys: pa.RecordBatch, marked: Bools) -> None:
        """``marked``: which keys get a mark if they have no state, although they have no footprint."""
        of, numbers = self._rows.find(keys)
        is_open = np.zeros(keys.num_rows, bool)
        is_open[of] = True
        had, former = self._saved.find(keys)
        if len(former):
            self._forget(former)
        is_closed = marked.copy()
        is_closed[had] = True
        is_closed &= ~is_open
        count, closed = int(np.count_nonzero(is_open)), int(np.count_nonzero(is_closed))
        if count + closed:
            batch = _Batch(
                self._next,
                at.position,
                Chunk(self._rows.take(np.sort(numbers))) if count else None,
                Chunk(self._marks(_where(keys, is_closed), at.key_groups)) if closed else None,
                count + closed,
                count,
                at.values,
            )
            self._next += 1
            self._log.append(batch)
            self._note(_where(keys, is_open), np.full(count, batch.number))
        self._saved.compact()
        while self._log and not self._log[0].live:
            self._log.popleft()

    def _forget(self, saved: Ints) -> None:
        numbers, counts = np.unique(fixed(self._saved.take(saved, [_AT]).column(_AT)), return_counts=True)
        first = self._log[0].number
        for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
            self._log[number - first].live -= count
        self._saved.remove(saved)

    def _note(self, keys: pa.RecordBatch, batches: Ints) -> None:
        """These keys have their deciding footprints in these batches."""
        self._saved.append(self._with(keys, batches))

    def _marks(self, keys: pa.RecordBatch, key_groups: int) -> pa.RecordBatch:
        return with_groups(keys, self.keys, key_groups).select([*self.keys, GROUP_COLUMN])

    def _with(self, keys: pa.RecordBatch, at: Ints) -> pa.RecordBatch:
        columns: list[Any] = [*(keys.column(key) for key in self.keys), pa.array(at, pa.int64())]
        return pa.RecordBatch.from_arrays(columns, names=[*self.keys, _AT])

    @property
    def extent(self) -> Extent:
        return Extent(
            [batch.position for batch in self._log],
            [batch.records for batch in self._log],
            [batch.live for batch in self._log],
        )

    def state(self, values: Mapping[str, Any]) -> OperatorState:
        """The extent, for a snapshot."""
        log = [[b.position, b.records, _rows(b.open), _rows(b.closed), dict(b.values)] for b in self._log]
        tables = {
            OPEN_TABLE: [batch.open for batch in self._log if batch.open is not None],
            CLOSED_TABLE: [batch.closed for batch in self._log if batch.closed is not None],
        }
        return OperatorState(tables, {**values, _LOG: log, _KEYS: self._saved.live_row_count})

    # ---- rebuilding

    def restore(self, part: OperatorState) -> Mapping[str, Any]:
        """Takes the footprints of a snapshot. Returns the values with which a rebuild begins. Raises CheckpointError if
        batches are not whole."""
        self.clear()
        self._rows.clear()
        self._log = deque(_batches(part))
        self._next, self._keys_at_end = len(self._log), part.values[_KEYS]
        return self._log[0].values if self._log else part.values

    def begin_rebuild(self) -> None:
        """Takes the rows of the footprints that decide. Raises CheckpointError if the log is not whole."""
        self._until = KeyedRows(self.keys)
        found = [(batch, chunk) for batch in self._log for chunk in (batch.open, batch.closed) if chunk is not None]
        if found:
            self._load([chunk.rows for _, chunk in found], [2 * b.number + (c is b.open) for b, c in found])
        if self._saved.rows != self._keys_at_end or any(not batch.live for batch in list(self._log)[:1]):
            raise UnreadableCheckpointError(
                f"the log of footprints has {self._saved.rows} keys with state, its end says {self._keys_at_end}: "
                f"the checkpoint is damaged; {DAMAGED_REMEDY}"
            )

    def _load(self, parts: Sequence[pa.RecordBatch], marks: Sequence[int]) -> None:
        """Takes the rows of the footprints that decide. ``parts``: rows of keys with state, and keys without, oldest
        first. ``marks``: twice the number of the batch of each, plus one if they have state."""
        assert self._until is not None
        keys = concat([part.select([*self.keys, GROUP_COLUMN]) for part in parts])
        mark = np.repeat(marks, [part.num_rows for part in parts])
        groups = group([keys.column(key) for key in self.keys], keys.num_rows)
        last = groups.last()
        decides = mark == mark[last][groups.ids]
        bounds = np.cumsum([0, *(part.num_rows for part in parts)])
        for number, part in enumerate(parts):
            if marks[number] % 2:
                self._rows.append(_where(part, decides[bounds[number] : bounds[number + 1]]))
        last = np.sort(last)
        newest, batches = keys.take(last), mark[last] // 2
        positions = np.array([batch.position for batch in self._log])
        self._until.append(self._with(newest, positions[batches]))
        is_open = mark[last] % 2 == 1
        self._note(_where(newest, is_open), batches[is_open])
        for batch, count in zip(self._log, np.bincount(batches[is_open], minlength=len(self._log)), strict=True):
            batch.live = int(count)

    def counting(self, rows: pa.RecordBatch, position: int) -> pa.RecordBatch:
        """The rows of the event at ``position`` that come behind the footprints of their keys."""
        assert self._until is not None
        of, numbers = self._until.find(rows)
        if not len(of):
            return rows
        behind = np.ones(rows.num_rows, bool)
        behind[of] = fixed(self._until.take(numbers, [_AT]).column(_AT)) <= position
        return rows if behind.all() else _where(rows, behind)

    def rebuilt(self) -> None:
        """All rows have come again: the state is that of the snapshot, in which every key had its footprint."""
        self._until = None
        self._changed, self._before_check = [], 0


class KeyedParts(PartwiseOperator):
    """An operator whose whole state is rows of keys, independent of each other. Its parts are keys. The order of its
    results must not depend on the order of these rows, which a rebuild does not repeat."""

    def __init__(self, keys: Sequence[str], rows: KeyedRows) -> None:
        self._log = FootprintLog(keys, rows)
        self.in_parts = False
        """Whether it must call ``changed``."""

    def tables_of(self, rows: pa.Schema) -> dict[str, pa.Schema]:
        """The columns of the tables of snapshots, if the state has these."""
        keys: list[Any] = [rows.field(name) for name in (*self._log.keys, GROUP_COLUMN)]
        return {ROWS_TABLE: rows, OPEN_TABLE: rows, CLOSED_TABLE: pa.schema(keys)}

    def values(self) -> dict[str, Any]:
        """The state besides the rows."""
        return {}

    def rebuild_values(self) -> dict[str, Any]:
        """The part of ``values`` with which a rebuild must begin as it was at the oldest footprint. The rest may be
        that of the snapshot."""
        return {}

    def changed(self, keys: pa.RecordBatch) -> None:
        """Windows of these keys were opened or closed: their footprints are written with the next batch."""
        self._log.changed(keys)

    def restore_parts(self, parts: Sequence[OperatorState], whole: Callable[[], None]) -> Sequence[Mapping[str, Any]]:
        """Takes footprints or, by calling ``whole``, the rows of a snapshot without. Returns, by part, the values to
        begin with. Raises CheckpointError."""
        if not any(_LOG in part.values for part in parts):
            whole()
            if self.in_parts:
                self._log.all_changed()
            return [part.values for part in parts]
        if len(parts) > 1 or not self.in_parts:
            raise not_restorable(self.ctx.operator)
        return [{**parts[0].values, **self._log.restore(parts[0])}]

    def save_in_parts(self) -> None:
        self.in_parts = True

    def save(self, position: int) -> None:
        self._log.save(self._place(position))

    def check(self, position: int, parts: int) -> None:
        self._log.check(self._place(position), parts)

    def _place(self, position: int) -> FootprintPlace:
        return FootprintPlace(position, self.ctx.key_groups, self.rebuild_values())

    def forget(self) -> None:
        self._log.all_changed()

    @property
    def extent(self) -> Extent:
        return self._log.extent

    def footprints(self) -> OperatorState:
        return self._log.state(self.values())

    def begin_rebuild(self) -> None:
        self._log.begin_rebuild()

    def rebuild(self, rows: pa.RecordBatch, side: int, position: int) -> None:
        self.on_rows(self._log.counting(rows, position), side)

    def rebuilt(self) -> None:
        self._log.rebuilt()


def saved_in_parts(part: OperatorState) -> bool:
    """Whether a snapshot holds footprints, and not the rows themselves."""
    return _LOG in part.values


def rows_of_footprints(keys: Sequence[str], part: OperatorState) -> list[pa.RecordBatch]:
    """The rows of the footprints that decide, each as it was where its footprint was written. Raises CheckpointError
    if the log of a snapshot is not whole."""
    rows = KeyedRows(keys)
    log = FootprintLog(keys, rows)
    log.restore(part)
    log.begin_rebuild()
    return rows.all()


def not_restorable(operator: str) -> CheckpointError:
    """Footprints were given to an operator that cannot rebuild its state from them."""
    return CheckpointError(
        f"operator {operator!r} is stored in parts, which only the same protocol and parallelism can put together: "
        "resume with these, stop the job, and then change them"
    )


def _rows(chunk: Chunk | None) -> int:
    return 0 if chunk is None else chunk.rows.num_rows


def _batches(part: OperatorState) -> Iterator[_Batch]:
    """The batches of a stored log: the chunks of each are the next ones of their tables. Raises CheckpointError if
    chunks are missing, or have other rows."""
    chunks = {table: iter(part.tables.get(table, ())) for table in (OPEN_TABLE, CLOSED_TABLE)}
    for number, (position, records, *rows, values) in enumerate(part.values[_LOG]):
        opened, closed = (next(found, None) if of else None for found, of in zip(chunks.values(), rows, strict=True))
        if [_rows(opened), _rows(closed)] != rows:
            raise UnreadableCheckpointError(
                f"batch {number} of the log of footprints has {_rows(opened)} and {_rows(closed)} rows of open and "
                f"closed keys, its header says {rows[0]} and {rows[1]}: the checkpoint is damaged; {DAMAGED_REMEDY}"
            )
        yield _Batch(number, position, opened, closed, records, 0, values)


def _where(rows: pa.RecordBatch, chosen: Bools) -> pa.RecordBatch:
    return rows.filter(pa.array(chosen))
