"""The steps of generated jobs with tables: the engine's join of a stream with a table, its aggregates with a time to
live, and its counts of distinct values. What they answer depends on the order of inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from clonos_py.columns.views import Ints, fixed
from clonos_py.model.aggregates import NEWEST, Aggregate
from clonos_py.model.joins import JoinType
from clonos_py.model.tables import weighted_schema
from clonos_py.operators.table_join import TableJoin
from clonos_py.operators.table_output import with_weight
from clonos_py.operators.tables import TableAggregate
from clonos_py.runtime.sim.histories import HISTORY_ROWS
from clonos_py.runtime.sim.step import EngineStep, answered

TABLE_SIDE = 1
_KEY = ("key",)
_LAST, _COUNT = pa.field("last", pa.int64()), pa.field("count", pa.int64())
_TABLE = pa.schema([_LAST, HISTORY_ROWS.field("key")])
_JOINED = HISTORY_ROWS.append(_LAST)
_UNKNOWN = -1
_TTL = 6
"""In ids, the event times: some keys expire in most runs."""
_COUNTED = pa.schema([HISTORY_ROWS.field("key"), _COUNT])
_RANKED = pa.schema([HISTORY_ROWS.field("key"), pa.field("rank", pa.int64())])
_COPY = pa.field("copy", pa.binary())
_DISTINCT = (Aggregate("count_distinct", "copy", "rank", pa.int64()),)
_AGGREGATES = (Aggregate("count", None, "count", pa.int64()), Aggregate("max", "id", NEWEST, pa.int64()))


class LookUpLastId(EngineStep):
    """Answers the last id that the second input had for the key of a row. Rows of the second input pass.
    ``load_first``: rows of the first one wait until the second has settled. Both inputs are partitioned by key."""

    def __init__(self, letter: int, load_first: bool) -> None:
        columns = (*((name, 0, name) for name in HISTORY_ROWS.names), ("last", 1, "last"))
        super().__init__(letter, TableJoin(_KEY, _KEY, _KEY, columns, _JOINED, JoinType.LEFT, load_first))

    def tables(self, inputs: Sequence[pa.Schema]) -> Mapping[str, pa.Schema]:
        return super().tables([inputs[0], weighted_schema(_TABLE)])

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        if side == TABLE_SIDE:
            deltas = pa.record_batch([rows.column("id"), rows.column("key")], schema=_TABLE)
            self._engine.on_rows(with_weight(deltas, 1), side)
            self.out.emit(answered(rows, self._letter, [_UNKNOWN] * rows.num_rows))
        else:
            self._engine.on_rows(rows, side)

    def emit(self, rows: pa.RecordBatch, port: int = 0) -> None:
        found: Ints = fixed(rows.column("last").fill_null(_UNKNOWN))
        self.out.emit(answered(rows, self._letter, found.tolist()))


class CountUntilExpiry(EngineStep):
    """Answers the number of rows of a key that have come, which begins again when the key has expired. Its input is
    partitioned by key."""

    def __init__(self, letter: int) -> None:
        super().__init__(letter, TableAggregate(_KEY, _AGGREGATES, _COUNTED, "changes", ttl_us=_TTL))
        self._counts: dict[int, int] = {}

    def emit(self, rows: pa.RecordBatch, port: int = 0) -> None:
        keys, counts = (fixed(column).tolist() for column in rows.columns)
        self._counts |= zip(keys, counts, strict=True)

    def answers(self, rows: pa.RecordBatch, side: int) -> list[int]:
        self._counts = {}
        self._engine.on_rows(rows, side)
        return [self._counts[key] for key in fixed(rows.column("key")).tolist()]


class RankByDistinct(EngineStep):
    """Numbers the rows of each key by how many different ones there are so far: no two have the same id and history.
    Its input is partitioned by key."""

    def __init__(self, letter: int) -> None:
        super().__init__(letter, TableAggregate(_KEY, _DISTINCT, _RANKED, "changes"))
        self._ranks: dict[int, int] = {}

    def tables(self, inputs: Sequence[pa.Schema]) -> Mapping[str, pa.Schema]:
        return super().tables([inputs[0].append(_COPY)])

    def emit(self, rows: pa.RecordBatch, port: int = 0) -> None:
        keys, ranks = (fixed(column).tolist() for column in rows.columns)
        self._ranks |= zip(keys, ranks, strict=True)

    def answers(self, rows: pa.RecordBatch, side: int) -> list[int]:
        """The table gives the count of a key behind all rows of the batch: it is that of the last one."""
        self._ranks = {}
        histories: list[bytes] = rows.column("history").to_pylist()  # type: ignore[assignment]
        ids = fixed(rows.column("id")).tolist()
        copies = pa.array([b"%d " % id_ + of for id_, of in zip(ids, histories, strict=True)], pa.binary())
        self._engine.on_rows(rows.append_column(_COPY, copies), side)
        answers = []
        for key in reversed(fixed(rows.column("key")).tolist()):
            answers.append(self._ranks[key])
            self._ranks[key] -= 1
        return answers[::-1]
