"""The rows of one input of a process function: those that wait for their turn, and each with its key and time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from clonos_py.columns.keys import key_groups
from clonos_py.columns.ordering import stable_order
from clonos_py.columns.times import instants
from clonos_py.columns.views import fixed
from clonos_py.model.operators import OperatorContext
from clonos_py.model.processes import ProcessInput
from clonos_py.model.record import record_type
from clonos_py.model.record_codec import SLICE_ROWS, decode
from clonos_py.model.state import GROUP_COLUMN, Chunk
from clonos_py.operators.event_time_buffer import EventTimeBuffer
from clonos_py.operators.key_states import encoded_keys
from clonos_py.operators.pairs import matchable


class GivenRow(NamedTuple):
    """``rows`` and ``row``: where it stands, in a slice that begins at ``start`` of a batch. ``key`` is encoded."""

    record: Any
    key: bytes
    group: int
    time: Any
    rows: pa.RecordBatch
    row: int
    start: int


class InputRows:
    """``put`` and ``due`` are for rows that are given in the order of event time."""

    def __init__(self, taken: ProcessInput, ctx: OperatorContext) -> None:
        self._keys, self._row_type, self._time, self._ctx = list(taken.keys), taken.row_type, taken.time_column, ctx
        self.clear()

    def clear(self) -> None:
        self._buffer = EventTimeBuffer(self._time or "", self._keys, self._ctx.key_groups)

    def put(self, rows: pa.RecordBatch) -> None:
        """Keeps rows that are not late until their time has come."""
        rows = matchable(rows, [], [self._time or ""], self._ctx.count)
        on_time = fixed(rows.column(self._time or "")) >= self._ctx.watermark
        late = rows.num_rows - int(np.count_nonzero(on_time))
        if late:
            self._ctx.count("late_rows", late)
            rows = rows.take(np.flatnonzero(on_time))
        self._buffer.add(rows)

    def due(self, watermark: int) -> pa.RecordBatch | None:
        """Takes the rows before ``watermark``, sorted; None if there are none."""
        return self._buffer.take(watermark)

    def times(self, rows: pa.RecordBatch) -> Any:
        return fixed(rows.column(self._time or ""))

    def given(self, rows: pa.RecordBatch) -> Iterator[GivenRow]:
        """Row by row."""
        for start in range(0, rows.num_rows, SLICE_ROWS):
            yield from self._given_slice(rows.slice(start, SLICE_ROWS), start)

    def _given_slice(self, rows: pa.RecordBatch, start: int) -> Iterator[GivenRow]:
        keys = encoded_keys(rows, self._keys)
        groups = key_groups(rows, self._keys, self._ctx.key_groups).tolist()
        rows = rows.select([name for name in rows.schema.names if name != GROUP_COLUMN])
        times: list[Any] = (
            [None] * rows.num_rows if self._time is None else instants(rows.column(self._time)).to_pylist()
        )
        records = next(decode(rows, self._row_type or record_type(rows.schema)))
        for row, (record, key, group, time) in enumerate(zip(records, keys, groups, times, strict=True)):
            yield GivenRow(record, key, group, time, rows, row, start)

    def chunks(self) -> list[Chunk]:
        """The rows that wait."""
        return self._buffer.chunks()

    def load(self, chunks: Iterable[Chunk]) -> None:
        """Adds rows of a snapshot."""
        self._buffer.load(chunks)


def in_order(inputs: list[InputRows], watermark: int) -> Iterator[tuple[int, GivenRow]]:
    """The rows before ``watermark`` of all inputs by their times, each with the number of its input; of equal times
    that of an earlier input first, then that which came first."""
    due = [(side, rows) for side, found in enumerate(inputs) if (rows := found.due(watermark)) is not None]
    if not due:
        return
    waiting = {side: inputs[side].given(rows) for side, rows in due}
    sides = np.concatenate([np.full(rows.num_rows, side) for side, rows in due])
    times = np.concatenate([inputs[side].times(rows) for side, rows in due])
    for side in sides[stable_order(times)].tolist():
        yield side, next(waiting[side])
