"""Deduplication by key: emits the first row of each key, and drops later ones.

The state holds the keys of emitted rows: permanently, or with a ttl and the time of the emitted row. That time is never
earlier than the watermark. So results do not depend on when expired keys are removed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from clonos_py.columns.grouping import Groups, group
from clonos_py.columns.views import Bools, Ints, fixed
from clonos_py.model.hidden import hidden
from clonos_py.model.operators import Operator
from clonos_py.model.state import OperatorState
from clonos_py.operators.expiry import Expiry
from clonos_py.operators.keyed_chunks import grouped_schema, with_groups
from clonos_py.operators.keyed_rows import ROWS_TABLE, KeyedRows
from clonos_py.operators.window_operator import with_times

PASSED_COLUMN = hidden("passed")
"""int64 column of the state: the time of the key's last emitted row, in microseconds."""


class DistinctCombine(Operator):
    """Emits the first row of each key in a batch, with these columns. Keeps no state."""

    def __init__(self, keys: Sequence[str], columns: Sequence[str]) -> None:
        self._keys = tuple(keys)
        self._columns = list(columns)

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        first = np.sort(group([rows.column(key) for key in self._keys], rows.num_rows).first)
        rows = rows.select(self._columns)
        self.out.emit(rows if len(first) == rows.num_rows else rows.take(first))


class Distinct(Operator):
    """Emits the first row of each key, with the columns of ``schema``. With ``ttl_us``, a later row is emitted, too, if
    its time is at least ``ttl_us`` after that of the key's last emitted row. A row's time is its ``time_column``, or
    the watermark if that is later."""

    def __init__(
        self, keys: Sequence[str], schema: pa.Schema, ttl_us: int | None = None, time_column: str | None = None
    ) -> None:
        self._keys = tuple(keys)
        self._columns = list(schema.names)
        self._ttl_us = ttl_us
        self._time = time_column or ""
        self._known = KeyedRows(keys)
        self._expiry = Expiry(ttl_us, PASSED_COLUMN)

    @property
    def final(self) -> bool:
        return self._ttl_us is not None

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        times = np.zeros(rows.num_rows, np.int64)
        if self._ttl_us is not None:
            rows, times = with_times(rows, self._time, self.ctx)
            times = np.maximum(times, self.ctx.watermark)
        if not rows.num_rows:
            return
        groups = group([rows.column(key) for key in self._keys], rows.num_rows)
        passed = self._passing(rows, groups, times)
        if passed.any():
            self.out.emit(rows.select(self._columns).filter(pa.array(passed)))

    def on_watermark(self, watermark: int) -> int:
        """Removes expired keys from time to time."""
        self._known.remove(self._expiry.due(self._known, watermark))
        self._known.compact()
        return watermark

    def tables(self, inputs: Sequence[pa.Schema]) -> Mapping[str, pa.Schema]:
        return {ROWS_TABLE: grouped_schema(inputs[0], self._keys).append(pa.field(PASSED_COLUMN, pa.int64()))}

    def snapshot(self) -> OperatorState:
        return self._known.snapshot({})

    def restore(self, parts: Sequence[OperatorState]) -> None:
        self._known.restore(parts, self.ctx.groups)
        self._expiry.restored()

    def _passing(self, rows: pa.RecordBatch, groups: Groups, times: Ints) -> Bools:
        """Which rows are emitted. Records their keys in the state."""
        keys = with_groups(rows.select(list(self._keys)).take(groups.first), self._keys, self.ctx.key_groups)
        positions, numbers = self._known.find(keys)
        known = np.zeros(groups.size, bool)
        last = np.zeros(groups.size, np.int64)
        known[positions] = True
        if len(numbers):
            last[positions] = fixed(self._known.take(numbers, [PASSED_COLUMN]).column(0))
        passed = _in_turn(groups.ids, times, known, last, self._ttl_us)
        new = np.zeros(groups.size, bool)
        new[groups.ids[passed]] = True
        if new.any():
            self._known.remove(np.sort(numbers[new[positions]]))
            self._known.append(keys.append_column(PASSED_COLUMN, pa.array(last)).filter(pa.array(new)))
            self._known.compact()
        return passed


def _in_turn(ids: Ints, times: Ints, known: Bools, last: Ints, ttl_us: int | None) -> Bools:
    """Which rows are emitted, deciding the rows of a key in order. Updates ``known`` and ``last``, by key."""
    passed = np.zeros(len(ids), bool)
    rows = np.arange(len(ids))
    while True:
        of = ids[rows]
        candidates = ~known[of] if ttl_us is None else ~known[of] | (last[of] <= times[rows] - ttl_us)
        rows = rows[candidates]
        if not len(rows):
            return passed
        first = np.full(len(known), -1, np.int64)
        first[ids[rows][::-1]] = rows[::-1]  # of several assignments to one index the last wins
        chosen = first[first >= 0]
        passed[chosen] = True
        known[ids[chosen]] = True
        last[ids[chosen]] = times[chosen]
