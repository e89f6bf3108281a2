"""The rows of one input of a process function: buffers them until the watermark, and decodes them with key and time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
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
from clonos_py.model.record_codec import SLICE_ROWS, UNDECODABLE, decode
from clonos_py.model.state import GROUP_COLUMN, Chunk
from clonos_py.operators.event_time_buffer import EventTimeBuffer
from clonos_py.operators.key_states import encoded_keys
from clonos_py.operators.row_filters import matchable


class GivenRows(NamedTuple):
    """Rows of one input as records for the function, with encoded keys, and times. Record i is row ``first + i`` of
    ``rows``, which is a slice of a batch from row ``start`` on. ``failed``: the errors of rows with a value that Python
    does not have, by number in ``rows``; they have no record and no key."""

    records: list[Any]
    keys: list[bytes]
    groups: list[int]
    times: list[Any]
    rows: pa.RecordBatch
    start: int
    first: int = 0
    failed: Mapping[int, Exception] = MappingProxyType({})

    def between(self, start: int, stop: int) -> GivenRows:
        """The records from ``start`` to ``stop``."""
        part = slice(start, stop)
        return self._replace(
            records=self.records[part],
            keys=self.keys[part],
            groups=self.groups[part],
            times=self.times[part],
            first=self.first + start,
        )


class InputRows:
    """The rows of one input. ``put`` and ``due`` are for rows that are processed in the order of event time."""

    def __init__(self, taken: ProcessInput, ctx: OperatorContext) -> None:
        self._keys, self._row_type, self._time, self._ctx = list(taken.keys), taken.row_type, taken.time_column, ctx
        self._buffer = EventTimeBuffer(self._time or "", self._keys, self._ctx.key_groups)

    def put(self, rows: pa.RecordBatch) -> None:
        """Buffers rows. Drops and counts late ones."""
        rows = matchable(rows, [], [self._time or ""], self._ctx.count)
        on_time = fixed(rows.column(self._time or "")) >= self._ctx.watermark
        late = rows.num_rows - int(np.count_nonzero(on_time))
        if late:
            self._ctx.count("late_rows", late)
            rows = rows.take(np.flatnonzero(on_time))
        self._buffer.add(rows)

    def due(self, watermark: int) -> pa.RecordBatch | None:
        """Removes and returns the rows before ``watermark``, sorted; None if there are none."""
        return self._buffer.take(watermark)

    def times(self, rows: pa.RecordBatch) -> Any:
        return fixed(rows.column(self._time or ""))

    def given(self, rows: pa.RecordBatch) -> Iterator[GivenRows]:
        """Decodes rows, a few thousand at a time."""
        for start in range(0, rows.num_rows, SLICE_ROWS):
            yield self._given_slice(rows.slice(start, SLICE_ROWS), start)

    def _given_slice(self, rows: pa.RecordBatch, start: int) -> GivenRows:
        groups = key_groups(rows, self._keys, self._ctx.key_groups).tolist()
        rows = rows.select([name for name in rows.schema.names if name != GROUP_COLUMN])
        times: list[Any] = (
            [None] * rows.num_rows if self._time is None else instants(rows.column(self._time)).to_pylist()
        )
        failed: dict[int, Exception] = {}
        keys, records = self._decoded(rows, 0, failed)
        return GivenRows(records, keys, groups, times, rows, start, failed=failed)

    def _decoded(self, rows: pa.RecordBatch, start: int, failed: dict[int, Exception]) -> tuple[list[bytes], list[Any]]:
        """Keys and records. Adds the errors of rows that have none to ``failed``, by number from ``start``."""
        try:
            keys = encoded_keys(rows, self._keys)
            return keys, next(decode(rows, self._row_type or record_type(rows.schema)))
        except UNDECODABLE as error:
            if rows.num_rows == 1:
                failed[start] = error
                return [b""], [None]
        half = rows.num_rows // 2
        first = self._decoded(rows.slice(0, half), start, failed)
        second = self._decoded(rows.slice(half), start + half, failed)
        return first[0] + second[0], first[1] + second[1]

    def chunks(self) -> list[Chunk]:
        """The buffered rows."""
        return self._buffer.chunks()

    def load(self, chunks: Iterable[Chunk]) -> None:
        """Replaces the buffered rows by those of a snapshot."""
        self._buffer.load(chunks)


def in_order(inputs: list[InputRows], watermark: int) -> Iterator[tuple[int, GivenRows]]:
    """Removes the rows before ``watermark`` of all inputs and yields them by event time, each run with the number of
    its input. Rows of equal time are ordered by input, then by arrival."""
    due = [(side, rows) for side, found in enumerate(inputs) if (rows := found.due(watermark)) is not None]
    if len(due) < 2:
        yield from ((side, given) for side, rows in due for given in inputs[side].given(rows))
        return
    waiting = {side: inputs[side].given(rows) for side, rows in due}
    parts = {side: next(given) for side, given in waiting.items()}
    taken = dict.fromkeys(parts, 0)
    for side, count in _runs(due, inputs):
        left = count
        while left:
            stop = min(taken[side] + left, len(parts[side].records))
            yield side, parts[side].between(taken[side], stop)
            left -= stop - taken[side]
            taken[side] = stop
            if left:
                parts[side], taken[side] = next(waiting[side]), 0


def _runs(due: list[tuple[int, pa.RecordBatch]], inputs: list[InputRows]) -> Iterator[tuple[int, int]]:
    """The runs (input, number of rows) in the merged order of event time."""
    sides = np.concatenate([np.full(rows.num_rows, side) for side, rows in due])
    times = np.concatenate([inputs[side].times(rows) for side, rows in due])
    sides = sides[stable_order(times)]
    begins = np.flatnonzero(np.concatenate([[True], sides[1:] != sides[:-1]]))
    counts = np.diff(np.append(begins, len(sides)))
    yield from zip(sides[begins].tolist(), counts.tolist(), strict=True)
