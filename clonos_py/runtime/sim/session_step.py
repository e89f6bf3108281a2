"""The step of generated jobs whose state is the engine's table of sessions, which shows sessions before they end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from zlib import crc32

import pyarrow as pa

from clonos_py.columns.views import fixed
from clonos_py.model.aggregates import Aggregate
from clonos_py.model.errors import UserCodeError
from clonos_py.model.state import Chunk, OperatorState, united
from clonos_py.model.tables import WEIGHT_COLUMN, weighted_schema
from clonos_py.model.times import MIN_TIME
from clonos_py.model.windows import BOUNDS, Every, OnChange, Session
from clonos_py.operators.keyed_chunks import grouped_schema, owned, stored, with_groups
from clonos_py.operators.session_table import SessionTable
from clonos_py.runtime.sim.histories import HISTORY_ROWS
from clonos_py.runtime.sim.step import EngineStep

_KEY = ("key",)
_GAP = 6
"""In ids, the event times: rows of a key are 5 apart, so those that come out of order merge sessions."""
_EMIT = (Every(15), Every(5_000, processing_time=True), OnChange())
_AGGREGATES = (Aggregate("count", None, "rows", pa.int64()), Aggregate("sum", "id", "total", pa.int64()))
_SHOWN = pa.schema([HISTORY_ROWS.field("key"), *(pa.field(name, pa.int64()) for name in (*BOUNDS, "rows", "total"))])
_DIGESTS = pa.schema([HISTORY_ROWS.field("key"), pa.field("digest", pa.int64())])
_SHOWN_TABLE, _DIGESTS_TABLE, _ENDED = "shown", "digests", "ended"


class _Session(NamedTuple):
    key: int
    start: int
    end: int


class ShowSessions(EngineStep):
    """Answers a digest of all that the table has shown and deleted of the key of a row, this row included. What is
    deleted must be shown as it was, and sessions of a key that can still change must not overlap: anything else stops
    the job. Its input is partitioned by key."""

    def __init__(self, letter: int) -> None:
        when = _EMIT[letter % len(_EMIT)]
        super().__init__(
            letter, SessionTable(_KEY, Session(_GAP), _AGGREGATES, weighted_schema(_SHOWN), when, "deltas", "id")
        )
        self._digests: dict[int, int] = {}
        self._shown: dict[_Session, tuple[int, int]] = {}
        self._ended = MIN_TIME

    def emit(self, rows: pa.RecordBatch, port: int = 0) -> None:
        changes = [tuple(row.values()) for row in rows.select([*_SHOWN.names, WEIGHT_COLUMN]).to_pylist()]
        for key, start, end, count, total, weight in changes:
            self._digests[key] = crc32(
                b"%d %d %d %d %d" % (start, end, count, total, weight), self._digests.get(key, 0)
            )
            found = _Session(key, start, end)
            if weight < 0 and self._shown.pop(found, None) != (count, total):
                raise UserCodeError(f"{found} is deleted and was not shown with {count} rows")
        for key, start, end, count, total, weight in changes:
            if weight > 0:
                self._show(_Session(key, start, end), (count, total))

    def _show(self, found: _Session, figures: tuple[int, int]) -> None:
        for other in self._shown:
            if other.key == found.key and other.start <= found.end and max(found.start, self._ended + 1) <= other.end:
                raise UserCodeError(f"{found} is shown beside {other}")
        self._shown[found] = figures

    def answers(self, rows: pa.RecordBatch, side: int) -> list[int]:
        self._engine.on_rows(rows, side)
        return [self._digests.get(key, 0) for key in fixed(rows.column("key")).tolist()]

    def on_watermark(self, watermark: int) -> int:
        held = super().on_watermark(watermark)
        self._ended = max(self._ended, watermark - 1)
        return held

    def on_timer(self, at: int) -> None:
        self._engine.on_timer(at)

    def tables(self, inputs: Sequence[pa.Schema]) -> Mapping[str, pa.Schema]:
        own = {_SHOWN_TABLE: grouped_schema(_SHOWN), _DIGESTS_TABLE: grouped_schema(_DIGESTS)}
        return {**super().tables(inputs), **own}

    def snapshot(self) -> OperatorState:
        shown = [(*found, *figures) for found, figures in self._shown.items()]
        tables = {
            _SHOWN_TABLE: [self._chunk(shown, _SHOWN)],
            _DIGESTS_TABLE: [self._chunk(list(self._digests.items()), _DIGESTS)],
        }
        return united(super().snapshot(), OperatorState(tables, {_ENDED: self._ended}))

    def _chunk(self, rows: Sequence[tuple[int, ...]], schema: pa.Schema) -> Chunk:
        columns = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in schema]
        return Chunk(with_groups(pa.record_batch(columns, schema=schema), _KEY, self.ctx.key_groups))

    def restore(self, parts: Sequence[OperatorState]) -> None:
        super().restore(parts)
        self._ended = max((part.values[_ENDED] for part in parts), default=MIN_TIME)
        shown, digests = self._rows(parts, _SHOWN_TABLE), self._rows(parts, _DIGESTS_TABLE)
        self._shown = {_Session(*row[:3]): (row[3], row[4]) for row in shown}
        self._digests = {row[0]: row[1] for row in digests}

    def _rows(self, parts: Sequence[OperatorState], table: str) -> list[tuple[int, ...]]:
        """The rows of the key groups of this instance, without these."""
        chunks = owned(stored(parts, table), self.ctx.groups)
        return [tuple(row.values())[:-1] for chunk in chunks for row in chunk.rows.to_pylist()]
