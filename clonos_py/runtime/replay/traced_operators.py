"""Operators that note what they take and emit. Where a user's function gives rows for a row, they note for which."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from clonos_py.model.operators import Operator, OperatorContext, Output
from clonos_py.operators.async_rows import MapAsyncRows
from clonos_py.operators.process import ProcessOperator
from clonos_py.operators.process_inputs import GivenRows
from clonos_py.operators.rows import DEAD_LETTERS, RESULTS, MapRows
from clonos_py.operators.subclassing import subclassed
from clonos_py.runtime.replay.histories import (
    UNKNOWN,
    Emitted,
    FromFrames,
    FromOperator,
    FromSource,
    OperatorHistory,
    TakenBatch,
    TaskHistory,
)

Look = Callable[["TracedOperator", pa.RecordBatch], None]
"""Is called when an operator takes rows."""


class TracedOperator(Operator):
    """What the subclasses share. ``number``: the operator's place in its vertex."""

    number: int
    task_of: Callable[[OperatorContext], TaskHistory]
    look: Look | None

    def open(self, ctx: OperatorContext, out: Output) -> None:
        self.task = self.task_of(ctx)
        self.history: OperatorHistory = self.task.operator(self.number)
        self._at_once = False
        self._origins: dict[int, list[tuple[int, int]]] = {}
        """By port: of the rows that the next batches hold."""
        self._row_keys: dict[int, list[Mapping[str, Any]]] = {}
        super().open(ctx, _NotedOutput(out, self))

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        self.history.taken.append(TakenBatch(rows, side, self._origin(rows)))
        if self.look is not None:
            self.look(self, rows)
        self._at_once = True
        try:
            super().on_rows(rows, side)
        finally:
            self._at_once = False

    def _origin(self, rows: pa.RecordBatch) -> FromFrames | FromOperator | FromSource:
        if (found := self.task.under_way.get(id(rows))) is not None:
            return found
        channel, number = self.ctx.frame
        return FromFrames(channel, number) if channel >= 0 else FromSource(number)

    @property
    def batch(self) -> int:
        """The number of the batch that is being processed."""
        return len(self.history.taken) - 1

    def emits(self, rows: pa.RecordBatch, port: int, out: Output) -> None:
        """The operator emits rows: passes them on."""
        emitted = self.history.emitted
        emitted.append(Emitted(rows, port, len(self.history.taken), self._at_once, *self._noted(rows, port)))
        under_way = self.task.under_way
        before = under_way.get(id(rows))
        under_way[id(rows)] = FromOperator(self.number, len(emitted) - 1)
        try:
            out.emit(rows, port)
        finally:
            if before is None:
                del under_way[id(rows)]
            else:  # an operator before it has emitted the same batch
                under_way[id(rows)] = before

    def _noted(
        self, rows: pa.RecordBatch, port: int
    ) -> tuple[list[tuple[int, int]] | None, list[Mapping[str, Any]] | None]:
        origins, keys = self._origins.get(port), self._row_keys.get(port)
        if origins is None:
            return None, None
        count = rows.num_rows
        self._origins[port] = origins[count:]
        if keys is None:
            return origins[:count], None
        self._row_keys[port] = keys[count:]
        return origins[:count], keys[:count]


class _NotedOutput:
    """The output of a traced operator."""

    def __init__(self, out: Output, operator: TracedOperator) -> None:
        self._out, self._operator = out, operator

    def emit(self, rows: pa.RecordBatch, port: int = 0) -> None:
        if rows.num_rows:
            self._operator.emits(rows, port, self._out)


class _TracedRows(TracedOperator, MapRows):
    def _encoded(self, results: list[Any], origins: list[int]) -> list[pa.RecordBatch]:
        self._origins[RESULTS] = [(self.batch, row) for row in origins]
        return super()._encoded(results, origins)

    def _emit_kept(self, rows: pa.RecordBatch, kept: list[int]) -> None:
        self._origins[RESULTS] = [(self.batch, row) for row in kept]
        super()._emit_kept(rows, kept)

    def emits(self, rows: pa.RecordBatch, port: int, out: Output) -> None:
        if port == DEAD_LETTERS:
            places: list[int] = rows.column("row").to_pylist()  # type: ignore[assignment]
            self._origins[port] = [(self.batch, row) for row in places]
        super().emits(rows, port, out)


class _TracedAsyncRows(TracedOperator, MapAsyncRows):
    """Rows that fail, and so leave no result, are rare: then it is unknown which of the rows of a batch are whose."""

    def open(self, ctx: OperatorContext, out: Output) -> None:
        super().open(ctx, out)
        self._numbers: dict[int, int] = {}
        """By identity of a batch, which its history keeps: its number."""

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        self._numbers[id(rows)] = len(self.history.taken)
        super().on_rows(rows, side)

    def _leaving(self) -> list[Any]:
        leaving = super()._leaving()
        self._origins[RESULTS] = []
        for row in leaving:
            number = self._numbers.get(id(row.batch), -1)
            origin = (number, row.position) if number >= 0 else UNKNOWN
            count = int(bool(row.results[0])) if self._kind == "filter" else len(row.results)
            self._origins[RESULTS] += [origin] * count
        return leaving

    def _fits(self, row: Any) -> bool:
        self._origins.pop(RESULTS, None)
        return super()._fits(row)


class _TracedProcess(TracedOperator, ProcessOperator):
    _given_rows: GivenRows | None = None
    _next = 0

    def _feed(self, side: int, given: GivenRows) -> None:
        self._given_rows, self._next = None if self._in_order else given, 0
        super()._feed(side, given)
        self._given_rows = None

    def _failure(self, call: Callable[..., Any], *given: Any) -> BaseException | None:
        origin = self._origin_of(given[0]) if len(given) > 1 else UNKNOWN
        before = self._results.counts
        error = super()._failure(call, *given)
        for port, (count, earlier) in enumerate(zip(self._results.counts, before, strict=True)):
            if more := count - earlier:
                self._origins.setdefault(port, []).extend([origin] * more)
                self._row_keys.setdefault(port, []).extend([self._keys.by_name(self.cell.key)] * more)
        return error

    def _origin_of(self, record: Any) -> tuple[int, int]:
        given = self._given_rows
        if given is None:
            return UNKNOWN
        while given.records[self._next] is not record:  # rows that cannot be decoded reach no function
            self._next += 1
        return self.batch, given.start + given.first + self._next


_KINDS: dict[type[Operator], type[TracedOperator]] = {
    MapRows: _TracedRows,
    MapAsyncRows: _TracedAsyncRows,
    ProcessOperator: _TracedProcess,
}


def traced(
    factory: Callable[[], Operator], number: int, task_of: Callable[[OperatorContext], TaskHistory], look: Look | None
) -> Operator:
    """Makes an operator that notes what it does in the history of its task, and calls ``look``."""
    return subclassed(factory, _KINDS, TracedOperator, number=number, task_of=task_of, look=look)
