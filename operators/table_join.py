"""Join of a stream with a table: each row is paired with the rows that the table has when it comes.

Which version of a row that is depends on the order in which the two inputs arrive. The task logs this order, and a
replay repeats it. The state holds the rows of the table, and those of the stream that wait until it is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from clonos_py.columns.views import fixed
from clonos_py.model.joins import JoinColumns, JoinType
from clonos_py.model.operators import Operator
from clonos_py.model.state import Chunk, OperatorState, united
from clonos_py.model.tables import WEIGHT_COLUMN
from clonos_py.model.times import MIN_TIME
from clonos_py.operators.keyed_chunks import grouped_schema, owned, stored, with_groups
from clonos_py.operators.keyed_rows import ROWS_TABLE, KeyedRows
from clonos_py.operators.pairs import Pairs, looked_up
from clonos_py.operators.row_filters import matchable
from clonos_py.operators.upserts import put_rows
from clonos_py.operators.weights import last_of_each

_TABLE = 1
_WAITING, _LOADED = "waiting", "loaded"
"""The rows that wait, and whether none does any more, in the state of a join that loads the table first."""


class TableJoin(Operator):
    """Joins on equal keys, those of the stream (side 0) and of the table (side 1); null equals nothing. ``identity``:
    the columns that identify a row of the table. Its deltas are those of ``table_output``: a row replaces the one
    before, unless it has other keys. ``how``: a join of which no row of the table alone is in the result.
    ``load_first``: rows of the stream wait until the table has settled (``on_settled``). Rows of a snapshot that wait
    do so without it, too."""

    def __init__(
        self,
        keys: Sequence[str],
        table_keys: Sequence[str],
        identity: Sequence[str],
        columns: JoinColumns,
        schema: pa.Schema,
        how: JoinType = JoinType.INNER,
        load_first: bool = False,
    ) -> None:
        self._load_first, self._loaded = load_first, not load_first
        self._waiting: list[Chunk] = []
        self._keys = tuple(keys)
        self._table_keys = tuple(table_keys)
        self._identity = tuple(dict.fromkeys([*table_keys, *identity]))
        self._how = how
        self._rows = KeyedRows(self._identity, also_by=self._table_keys)
        self._pairs = Pairs(columns, schema, how)

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        if side == _TABLE:
            self._change(rows)
            return
        rows = matchable(rows, self._keys, (), self.ctx.count, self._how.unmatched[0])
        if self._loaded:
            self._look_up(rows)
        elif rows.num_rows:
            self._waiting.append(Chunk(with_groups(rows, self._keys, self.ctx.key_groups)))
            self.ctx.hold(True, enough=False)

    def on_watermark(self, watermark: int) -> int:
        return self.released()

    def on_settled(self, side: int) -> None:
        self._loaded = True
        waiting, self._waiting = self._waiting, []
        for chunk in waiting:
            self._look_up(chunk.rows)
        self.ctx.hold(False, enough=False)

    def released(self) -> int:
        return self.ctx.watermark if self._loaded else MIN_TIME

    def tables(self, inputs: Sequence[pa.Schema]) -> Mapping[str, pa.Schema]:
        names = [name for name in inputs[_TABLE].names if name != WEIGHT_COLUMN]
        waiting = {_WAITING: grouped_schema(inputs[0])} if self._load_first else {}
        return {ROWS_TABLE: grouped_schema(inputs[_TABLE], names), **waiting}

    def snapshot(self) -> OperatorState:
        rows = self._rows.snapshot({})
        if self._loaded and not self._load_first:
            return rows
        return united(rows, OperatorState({_WAITING: list(self._waiting)}, {_LOADED: self._loaded}))

    def restore(self, parts: Sequence[OperatorState]) -> None:
        self._rows.restore(parts, self.ctx.groups)
        self._loaded = (bool(parts) or not self._load_first) and all(part.values.get(_LOADED, True) for part in parts)
        self._waiting = list(owned(stored(parts, _WAITING), self.ctx.groups))
        self.ctx.hold(bool(self._waiting), enough=False)

    def _look_up(self, rows: pa.RecordBatch) -> None:
        left, numbers = self._rows.find(rows, by=self._table_keys, named=self._keys)
        found = self._rows.take(numbers) if self._how.pairs and len(numbers) else None
        pairs = looked_up(self._how, (left, np.arange(len(left))), rows.num_rows)
        for batch in self._pairs.batches((rows, found), pairs):
            self.out.emit(batch)

    def _change(self, deltas: pa.RecordBatch) -> None:
        """The table changes. Its rows without a key match nothing, and are not kept."""
        deltas = matchable(deltas, self._table_keys, (), lambda name, rows: None)
        last = last_of_each(deltas, self._identity)
        rows = with_groups(last.drop_columns([WEIGHT_COLUMN]), self._table_keys, self.ctx.key_groups)
        put_rows(self._rows, rows, fixed(last.column(WEIGHT_COLUMN)))
