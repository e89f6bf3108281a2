"""The steps of generated jobs that keep rows until the watermark has passed: the engine's joins of sessions and of
versions, and its function of whole windows. What they answer depends on when a partition becomes idle, too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from clonos_py.columns.views import Ints, fixed
from clonos_py.model.joins import JoinType
from clonos_py.model.windows import Session, Tumbling
from clonos_py.operators.session_join import SessionJoin
from clonos_py.operators.version_join import VersionJoin
from clonos_py.operators.window_groups import MapWindows
from clonos_py.operators.window_operator import LATE_PORT
from clonos_py.runtime.sim.histories import HISTORY_ROWS, key_of
from clonos_py.runtime.sim.step import EngineStep, answered
from clonos_py.services.context import Context

_KEY = ("key",)
_LATE, _PASSED = -2, -1
"""The answers of rows that are too late, and of those that only pass."""
_OTHER, _TIME = pa.field("other", pa.int64()), pa.field("time", pa.int64())
_COLUMNS = (*((name, 0, name) for name in HISTORY_ROWS.names), ("other", 1, "id"))
_JOINED = HISTORY_ROWS.append(_OTHER)
_OF_BOTH = (("id", 0, "id"), ("history", 0, "history"), ("other", 1, "id"), ("other_history", 1, "history"))
_PAIRED = pa.schema([HISTORY_ROWS.field(of).with_name(name) for name, _, of in _OF_BOTH])
_BLOCK = 10
"""So many ids have the same time in a session join: two rows of each key."""
_WINDOW = Tumbling(8)


class _Sessions(SessionJoin):
    """Emits late rows, too."""

    def on_late(self, rows: pa.RecordBatch, side: int) -> None:
        self.out.emit(rows, LATE_PORT)


class JoinSessions(EngineStep):
    """Answers the sum of the ids that the other input had in the session of a row. Late rows pass. Both inputs are
    partitioned by key."""

    def __init__(self, letter: int) -> None:
        keys = pa.schema([HISTORY_ROWS.field("key")])
        engine = _Sessions(keys, _KEY, Session(_BLOCK // 2), "time", "time", _OF_BOTH, _PAIRED, JoinType.FULL)
        super().__init__(letter, engine)
        self._sums: dict[tuple[int, bytes], int] = {}

    def tables(self, inputs: Sequence[pa.Schema]) -> Mapping[str, pa.Schema]:
        return super().tables([rows.append(_TIME) for rows in inputs])

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        times = fixed(rows.column("id")) // _BLOCK * _BLOCK + _BLOCK
        self._engine.on_rows(rows.append_column(_TIME, pa.array(times)), side)

    def on_watermark(self, watermark: int) -> int:
        held = super().on_watermark(watermark)
        if self._sums:
            joined = [(id_, key_of(id_), history) for id_, history in self._sums]
            rows = pa.record_batch([list(column) for column in zip(*joined, strict=True)], schema=HISTORY_ROWS)
            self.out.emit(answered(rows, self._letter, list(self._sums.values())))
            self._sums = {}
        return held

    def emit(self, rows: pa.RecordBatch, port: int = 0) -> None:
        """A row comes once for each row of the other side in its session, or alone."""
        if port == LATE_PORT:
            self.out.emit(answered(rows, self._letter, [_LATE] * rows.num_rows))
            return
        for row in rows.to_pylist():
            self._add(row["id"], row["history"], row["other"])
            self._add(row["other"], row["other_history"], row["id"])

    def _add(self, id_: int | None, history: bytes, other: int | None) -> None:
        if id_ is not None:
            self._sums[id_, history] = self._sums.get((id_, history), 0) + (other or 0)


class JoinAsOf(EngineStep):
    """Answers the last id of the key, up to that of the row, that the first input had. Rows of the first input pass,
    and so do late rows of the second one: its ids, the event times, are the greater ones. Both are partitioned by
    key."""

    def __init__(self, letter: int) -> None:
        super().__init__(letter, VersionJoin(_KEY, _KEY, "id", "id", _COLUMNS, _JOINED, how=JoinType.LEFT))

    def tables(self, inputs: Sequence[pa.Schema]) -> Mapping[str, pa.Schema]:
        return super().tables(inputs[::-1])

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        passing, answer = np.ones(rows.num_rows, bool), _PASSED
        if side:
            passing, answer = fixed(rows.column("id")) < self.ctx.watermark, _LATE
        self._engine.on_rows(rows, 1 - side)
        passed = rows.filter(pa.array(passing))
        self.out.emit(answered(passed, self._letter, [answer] * passed.num_rows))

    def emit(self, rows: pa.RecordBatch, port: int = 0) -> None:
        found: Ints = fixed(rows.column("other").fill_null(_PASSED))
        self.out.emit(answered(rows, self._letter, found.tolist()))


class MapRowsOfWindows(MapWindows):
    """Answers the number of rows of the key in the window of a row, with a random number for all of them. Late rows
    pass. Its input is partitioned by key."""

    def __init__(self, letter: int) -> None:
        def counted(rows: pa.RecordBatch, ctx: Context) -> pa.RecordBatch:
            drawn = ctx.random.getrandbits(32) << 8
            return answered(rows, letter, [drawn + rows.num_rows] * rows.num_rows)

        super().__init__(counted, HISTORY_ROWS, HISTORY_ROWS, _KEY, _WINDOW, "id", wants_ctx=True)
        self._letter = letter

    def on_late(self, rows: pa.RecordBatch) -> None:
        self.out.emit(answered(rows, self._letter, [_LATE] * rows.num_rows))
