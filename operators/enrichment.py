"""Join with a bounded side input, which every task reads completely before its first row and holds in memory.

The rows of the side input are not part of the state: a replacement reads them again. A snapshot holds a checksum of
them, since a replay over different rows would give different results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from clonos_py.columns.hash_index import new_index
from clonos_py.columns.keys import hash_rows
from clonos_py.columns.matching import equal_rows
from clonos_py.columns.offsets import Offsets, integers
from clonos_py.columns.views import Ints, concat
from clonos_py.model.errors import SourceError
from clonos_py.model.joins import JoinColumns, JoinType
from clonos_py.model.operators import Discovered, End, Operator, OperatorContext, Output, Source, Wait
from clonos_py.model.state import OperatorState
from clonos_py.operators.pairs import Pairs, looked_up
from clonos_py.operators.row_filters import matchable


class Enrich(Operator):
    """Pairs each row with the rows of the side input that have the same keys (null equals nothing), in their order.
    ``how``: a join of which no row of the side input alone is in the result.

    ``side`` creates the source of the side input, whose rows have the columns ``side_schema``. Raises SourceError if
    the source has no end, or has changed since the checkpoint.
    """

    def __init__(
        self,
        side: Callable[[], Source],
        side_schema: pa.Schema,
        keys: Sequence[str],
        side_keys: Sequence[str],
        columns: JoinColumns,
        schema: pa.Schema,
        how: JoinType = JoinType.INNER,
    ) -> None:
        self._side = side
        self._side_schema = side_schema
        self._keys = (list(keys), list(side_keys))
        self._how = how
        self._pairs = Pairs(columns, schema, how)

    def open(self, ctx: OperatorContext, out: Output) -> None:
        super().open(ctx, out)
        self._known = read_whole(self._side(), self._side_schema, ctx.operator)
        self._index = new_index()
        self._index.append(hash_rows(self._known, self._keys[1]))
        self._offsets = Offsets.of(self._known.column(self._keys[1][0])) if len(self._keys[1]) == 1 else None
        every = hash_rows(self._known, self._side_schema.names)
        self._checksum = int((every * np.arange(1, 2 * len(every), 2, dtype=np.uint64)).sum()) & (2**63 - 1)

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        rows = matchable(rows, self._keys[0], (), self.ctx.count, self._how.unmatched[0])
        positions, numbers = self._matches(rows)
        if self._how is not JoinType.INNER:
            pairs = np.arange(rows.num_rows) if positions is None else positions, numbers
            positions, numbers = looked_up(self._how, pairs, rows.num_rows)
        for batch in self._pairs.batches((rows, self._known), (positions, numbers)):
            self.out.emit(batch)

    def _matches(self, rows: pa.RecordBatch) -> tuple[Ints | None, Ints]:
        """Matching (positions in ``rows``, row numbers of the side input). Positions are None if every row matches
        exactly once."""
        if self._offsets is not None and (keys := integers(rows.column(self._keys[0][0]))) is not None:
            return self._offsets.probe(keys)
        positions, numbers = self._index.probe(hash_rows(rows, self._keys[0]))
        equal = equal_rows(rows, self._keys[0], positions, self._known, self._keys[1], numbers)
        return positions[equal], numbers[equal]

    def snapshot(self) -> OperatorState:
        return OperatorState(values={"checksum": self._checksum, "rows": self._known.num_rows})

    def restore(self, parts: Sequence[OperatorState]) -> None:
        for part in parts:
            if part.values["checksum"] != self._checksum:
                before, now = part.values.get("rows"), self._known.num_rows
                rows = f"has other values in its {now} rows" if before == now else f"had {before} rows and has {now}"
                raise SourceError(
                    f"operator {self.ctx.operator!r}: the side input has changed since the checkpoint, it {rows}: put "
                    "back what was there, or start over with --fresh"
                )


def read_whole(source: Source, schema: pa.Schema, operator: str) -> pa.RecordBatch:
    """All rows of a bounded source, in the order of partitions, regardless of the order in which they were read."""
    source.open(0, 1)
    try:
        rows: dict[int, list[pa.RecordBatch]] = {}
        while not isinstance(read := source.poll(0), End):
            if isinstance(read, Wait):
                if not source.wait_for_rows():
                    raise SourceError(f"operator {operator!r}: a side input must end, and this one is unbounded")
            elif isinstance(read, Discovered):
                source.discovered(read.starts)
            else:
                rows.setdefault(read.partition, []).extend(part for part in read.rows if part is not None)
        in_order = [batch for partition in sorted(rows) for batch in rows[partition]]
        return concat([pa.RecordBatch.from_pylist([], schema=schema), *in_order])
    finally:
        source.close()
