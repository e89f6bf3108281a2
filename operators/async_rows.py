"""Asynchronous row functions: map, flat_map and filter with ``async def`` functions (D4).

Results are emitted in the order of the input rows, or in the order of completion.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from clonos_py.columns.views import Ints, concat
from clonos_py.model.calls import Waiting
from clonos_py.model.errors import Interrupted
from clonos_py.model.record import Record, record_type
from clonos_py.model.record_codec import SLICE_ROWS, FieldError, decode_each, encode
from clonos_py.model.state import OperatorState
from clonos_py.model.times import MIN_TIME
from clonos_py.operators.async_calls import AsyncCalls, AsyncRow, RowNote, calls_schema
from clonos_py.operators.held_watermarks import HeldWatermarks
from clonos_py.operators.rows import RESULTS, Kind, misfit_of, truth_of
from clonos_py.services.keys import origin_of


class MapAsyncRows(AsyncCalls):
    """Applies ``fn`` as MapRows does, but to many rows concurrently."""

    def __init__(
        self,
        fn: Callable[..., Any],
        row_type: type[Record] | None,
        schema: pa.Schema,
        kind: Kind,
        wants_ctx: bool,
        waiting: Waiting,
        on_error: Literal["fail", "catch"] = "fail",
    ) -> None:
        super().__init__(fn, row_type, wants_ctx, waiting, on_error == "catch")
        self._schema, self._kind = schema, kind

    def _clear(self) -> None:
        super()._clear()
        self._done: list[AsyncRow] = []
        self._watermarks = HeldWatermarks()

    # ---- events

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        def failed(row: int, error: Exception) -> None:
            self._failures.add(rows, row, error, self._fn)

        for part, numbers in decode_each(rows, self._row_type or record_type(rows.schema), failed):
            for position, record in zip(numbers, part, strict=True):
                note = RowNote(self._next, origin_of(self.ctx, position))
                self._add(AsyncRow(note, rows, position, record))
                self._next += 1
        self._progress()

    def on_watermark(self, watermark: int) -> int:
        self._watermarks.add(self._next, watermark)
        return self.released()

    def released(self) -> int:
        return self._watermarks.released(next(iter(self._rows), self._next))

    # ---- processing of a row

    def _call(self, row: AsyncRow, services: dict[str, Any]) -> Any:
        return self._fn(row.record, **services)

    def _read(self, row: AsyncRow, result: Any) -> list[Any]:
        if self._kind == "flat_map":
            return list(result or ())
        return [truth_of(result) if self._kind == "filter" else result]

    def _finished(self, row: AsyncRow, found: list[Any]) -> None:
        row.results = found
        self._done.append(row)

    def _failed(self, row: AsyncRow, problem: BaseException) -> None:
        self._failures.add(row.batch, row.position, problem, self._fn, row.note.origin)

    # ---- results

    def _emit(self) -> None:
        """Emits the results of all rows that may leave, together."""
        self._emit_results()
        self._hold()

    def _hold(self) -> None:
        self.ctx.hold(bool(self._rows), len(self._rows) >= self._waiting.concurrency)

    def _emit_results(self) -> None:
        leaving = self._leaving()
        self._done = []
        for row in leaving:
            del self._rows[row.note.number]
        if self._kind == "filter":
            kept = [row.batch.slice(row.position, 1) for row in leaving if row.results[0]]
            if kept:
                self.out.emit(concat(kept))
            return
        try:
            batches = self._encoded([result for row in leaving for result in row.results])
        except Interrupted:
            raise
        except BaseException:  # noqa: BLE001 - see AsyncCalls._finish
            batches = self._encoded([result for row in leaving if self._fits(row) for result in row.results])
        for batch in batches:
            self.out.emit(batch, RESULTS)

    def _leaving(self) -> list[AsyncRow]:
        if not self._waiting.ordered:
            return self._done
        leaving = []
        for row in self._rows.values():
            if not row.note.done:
                break
            leaving.append(row)
        return leaving

    def _encoded(self, results: list[Any]) -> list[pa.RecordBatch]:
        cuts = range(0, len(results), SLICE_ROWS)
        return [encode(results[start : start + SLICE_ROWS], self._schema) for start in cuts]

    def _fits(self, row: AsyncRow) -> bool:
        try:
            encode(row.results, self._schema)
        except FieldError as misfit:
            failure = misfit_of(misfit, row.results[0], self._kind)
            self._failures.add(row.batch, row.position, failure, self._fn, row.note.origin)
            return False
        except Interrupted:
            raise
        except BaseException as problem:  # noqa: BLE001 - see AsyncCalls._finish
            self._failures.add(row.batch, row.position, problem, self._fn, row.note.origin)
            return False
        return True

    # ---- state

    def tables(self, inputs: Sequence[pa.Schema]) -> Mapping[str, pa.Schema]:
        return {"rows": calls_schema(inputs[0])}

    def snapshot(self) -> OperatorState:
        rows = self._stored_rows(self._groups)
        return OperatorState({"rows": rows} if rows else {}, {"next": self._next, "marks": self._watermarks.stored})

    def _groups(self, rows: pa.RecordBatch) -> Ints:
        """Rows have no key: they are spread over the key groups of this instance."""
        numbers = np.fromiter(self._rows, np.int64, len(self._rows))
        return self.ctx.groups.start + numbers % len(self.ctx.groups)

    def restore(self, parts: Sequence[OperatorState]) -> None:
        self._clear()
        known = [part.values["marks"] for part in parts] if self.ctx.watermark != MIN_TIME else []
        self._watermarks = HeldWatermarks((number, at) for marks in known for number, at in marks)
        self._take_over(parts, "rows")
        if self._queue and self._has_room:
            self.ctx.set_timer(0)  # at a new parallelism there may be room but no running row that triggers _progress
        self._hold()
