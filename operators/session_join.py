"""Session join: joins rows with equal keys that are in the same session, which the rows of both sides make.

The sessions are those of ``SessionAggregate`` over the rows of both sides. When some have ended by the watermark, their
rows are paired: in the order of sessions, then of the left row, then of the right row. An outer join then gives the
rows without a match in their session. Late rows are dropped and counted as ``late_rows``. Rows with a null key have
sessions, too, but match nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from clonos_py.columns.matching import with_keys
from clonos_py.columns.views import fixed
from clonos_py.model.hidden import hidden
from clonos_py.model.joins import JoinColumns, JoinType
from clonos_py.model.operators import Operator, OperatorContext, Output
from clonos_py.model.state import OperatorState, united
from clonos_py.model.windows import BOUNDS, Session
from clonos_py.operators.ended_sessions import EndedSessions, taken_with
from clonos_py.operators.keyed_chunks import grouped_schema, with_groups
from clonos_py.operators.keyed_rows import KeyedRows
from clonos_py.operators.pairs import Pairs, among
from clonos_py.operators.row_filters import matchable

_SIDES = ("left", "right")
_SESSION = hidden("session")


class SessionJoin(Operator):
    """Joins on equal keys (null equals nothing) within sessions in event time.

    ``key_fields``: the fields of the left keys; those of the right have the same types. ``columns`` give the origin of
    each field of ``schema``, except of ``window_start`` and ``window_end``. ``how``: which rows are in the result.
    """

    def __init__(
        self,
        key_fields: pa.Schema,
        right_keys: Sequence[str],
        window: Session,
        left_time: str,
        right_time: str,
        columns: JoinColumns,
        schema: pa.Schema,
        how: JoinType = JoinType.INNER,
    ) -> None:
        self._keys = (tuple(key_fields.names), tuple(right_keys))
        self._times = (left_time, right_time)
        self._unmatched = how.unmatched
        self._bounds = [field for field in schema if field.name in BOUNDS]
        bounds = tuple((field.name, 0, field.name) for field in self._bounds)
        self._kept = tuple(
            Pairs(columns, schema, how, self._keys).needed(side, *self._keys[side], self._times[side])
            for side in (0, 1)
        )
        self._pairs = Pairs((*columns, *bounds), schema, how, self._keys, of_either=[name for name, _, _ in bounds])
        self._sessions = EndedSessions(key_fields, window)
        self._rows = tuple(KeyedRows(keys, table) for keys, table in zip(self._keys, _SIDES, strict=True))

    def open(self, ctx: OperatorContext, out: Output) -> None:
        super().open(ctx, out)
        self._sessions.open(ctx)

    @property
    def final(self) -> bool:
        return True

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        time, keys = self._times[side], self._keys[side]
        rows = matchable(rows, keys, [time], self.ctx.count, self._unmatched[side])
        if not rows.num_rows:
            return
        rows, late = self._sessions.taken(rows, keys, time)
        if late.num_rows:
            self.on_late(late, side)
        self._rows[side].append(with_groups(rows.select(self._kept[side]), keys, self.ctx.key_groups))

    def on_late(self, rows: pa.RecordBatch, side: int) -> None:
        """Takes rows that are dropped. They are counted already."""

    def on_watermark(self, watermark: int) -> int:
        """Joins the sessions that have ended. Pairs have the time of the last moment of their session, so the watermark
        holds for them."""
        for sessions in self._sessions.ended(watermark):
            self._join(sessions)
        return watermark

    def tables(self, inputs: Sequence[pa.Schema]) -> Mapping[str, pa.Schema]:
        sides = {name: grouped_schema(inputs[side], self._kept[side]) for side, name in enumerate(_SIDES)}
        return {**sides, **self._sessions.tables}

    def snapshot(self) -> OperatorState:
        return united(*(rows.snapshot({}) for rows in self._rows), self._sessions.operator.snapshot())

    def restore(self, parts: Sequence[OperatorState]) -> None:
        self._sessions.operator.restore(parts)
        for rows in self._rows:
            rows.restore(parts, self.ctx.groups)

    def _join(self, sessions: pa.RecordBatch) -> None:
        left, right = self._ended(0, sessions), self._ended(1, sessions)
        for batch in self._pairs.joined(left, right, ([_SESSION], [_SESSION])):
            self.out.emit(batch)

    def _ended(self, side: int, sessions: pa.RecordBatch) -> pa.RecordBatch | None:
        """The rows of these sessions, which leave the state, in the order of sessions, then of arrival; with the bounds
        of the session, and its number, which is null for a null key. None if the side has no rows at all."""
        rows, keys = self._rows[side], self._keys[side]
        if not rows.rows:
            return None
        of, found = taken_with(sessions, rows, self._keys[0], self._times[side])
        for field in self._bounds:
            found = found.append_column(field, pa.array(fixed(sessions.column(field.name))[of]).cast(field.type))
        keyed = with_keys(found, keys)
        unkeyed = None if keyed is None else ~among(keyed, len(of))
        return found.append_column(pa.field(_SESSION, pa.int64()), pa.array(of, pa.int64(), mask=unkeyed))
