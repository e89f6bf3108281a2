"""Asynchronous row functions: map, flat_map and filter with ``async def`` functions (D4).

At most ``concurrency`` rows are processed at a time, each in a coroutine. The operator itself resumes a coroutine when
a call is answered or a timer fires; both are events of the task's log. So a replay resumes coroutines in the same
order. Results are emitted in the order of the input rows, or in the order of completion.

A snapshot holds the unfinished rows, each with its answer history. A restore restarts their coroutines and replays the
history, which brings them to the same ``await``.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import msgspec
import pyarrow as pa

from clonos_py.columns.views import concat
from clonos_py.model.calls import Waiting
from clonos_py.model.errors import DivergenceError, Interrupted, ServiceError, UserCodeError
from clonos_py.model.hidden import hidden
from clonos_py.model.operators import Operator, OperatorContext, Output
from clonos_py.model.record import Record, record_type
from clonos_py.model.record_codec import SLICE_ROWS, FieldError, decode, decode_each, encode
from clonos_py.model.state import GROUP_COLUMN, Chunk, OperatorState
from clonos_py.model.times import MIN_TIME
from clonos_py.model.user_metrics import MetricDefinition
from clonos_py.operators.failures import RowFailures
from clonos_py.operators.keyed_chunks import grouped_schema, stored
from clonos_py.operators.opening import close, opened
from clonos_py.operators.rows import DEAD_LETTERS, RESULTS, Kind, misfit_of, truth_of
from clonos_py.services.async_context import SLEEP, AnswerHistory, AsyncContext, Awaited
from clonos_py.services.keys import Origin, origin_of
from clonos_py.services.metrics import FunctionMetrics

_STATE_COLUMN = hidden("state")


class _Note(msgspec.Struct, array_like=True):
    """The state of an unfinished row, besides its columns."""

    number: int
    origin: Origin
    began: bool = False
    answers: list[list[Any]] = []
    deadline_us: int | None = None
    wake_us: int | None = None
    """When the row resumes, if it sleeps."""
    done: bool = False
    """Whether the row is finished and only waits for earlier rows to be emitted."""


class _Row:
    """An input row whose results are not emitted yet. It is row ``position`` of ``batch``."""

    def __init__(self, note: _Note, batch: pa.RecordBatch, position: int, record: Any) -> None:
        self.note, self.batch, self.position, self.record = note, batch, position, record
        self.history = AnswerHistory(note.answers)
        self.coroutine: Coroutine[Any, Any, Any] | None = None
        self.results: list[Any] = []
        self.measured: list[tuple[MetricDefinition, float]] = []
        """What its function has given to metrics. It counts when the row is done: a restore calls the function again
        from its beginning."""
        self.is_counted = False
        """Whether the row was done, and so counted, before the restore."""

    def measure(self, definition: MetricDefinition, amount: float) -> None:
        self.measured.append((definition, amount))


class MapAsyncRows(Operator):
    """Applies ``fn`` as MapRows does, but to many rows concurrently. A row that is not done within
    ``waiting.timeout_us`` fails."""

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
        self._fn, self._row_type, self._schema, self._kind = fn, row_type, schema, kind
        self._wants_ctx, self._waiting, self._catch = wants_ctx, waiting, on_error == "catch"

    def open(self, ctx: OperatorContext, out: Output) -> None:
        super().open(ctx, out)
        self._fn = opened(self._fn, ctx)
        self._failures = RowFailures(ctx, self._catch)
        self._metrics = FunctionMetrics(ctx.measure)
        self._clear()

    def _clear(self) -> None:
        self._rows: dict[int, _Row] = {}
        """Unfinished rows by number, in order."""
        self._queue: deque[_Row] = deque()
        self._done: list[_Row] = []
        self._alarms: dict[int, set[int]] = {}
        self._calls_running = 0
        self._watermark = MIN_TIME
        self._marks: deque[tuple[int, int]] = deque()
        self._next = 0

    def close(self) -> None:
        for row in self._rows.values():
            if row.coroutine is not None:
                row.coroutine.close()
        close(self._fn, self.ctx)

    # ---- events

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        def failed(row: int, error: Exception) -> None:
            self._failures.add(rows, row, error, self._fn)

        for part, numbers in decode_each(rows, self._row_type or record_type(rows.schema), failed):
            for position, record in zip(numbers, part, strict=True):
                note = _Note(self._next, origin_of(self.ctx, position))
                self._add(_Row(note, rows, position, record))
                self._next += 1
        self._progress()

    def on_answer(self, number: int, value: Any, error: str | None) -> None:
        row = self._rows[number]
        row.history.add(value, error)
        self._resume(row, value, error)
        self._progress()

    def on_timer(self, at: int) -> None:
        for number in sorted(self._alarms.pop(at, ())):
            row = self._rows[number]
            if row.note.deadline_us is not None and row.note.deadline_us <= at:
                assert self._waiting.timeout_us is not None
                self._fail(row, ServiceError(f"not done within {self._waiting.timeout_us / 1e6:g} s"))
            else:
                row.note.wake_us = None
                row.history.add(None)
                self._resume(row)
        self._progress()

    def on_watermark(self, watermark: int) -> int:
        self._marks.append((self._next, watermark))
        return self.released()

    def released(self) -> int:
        """The watermark that holds now: a watermark is held back until all rows before it have left."""
        first = next(iter(self._rows), self._next)
        while self._marks and self._marks[0][0] <= first:
            self._watermark = self._marks.popleft()[1]
        return self._watermark

    def row_of(self, number: int) -> tuple[pa.RecordBatch, int]:
        """For observers: where a row with this number is, as a batch and a position in it."""
        return self._rows[number].batch, self._rows[number].position

    @property
    def unfinished(self) -> list[int]:
        """For observers: the numbers of the rows whose function has not returned, or was not called yet."""
        return [number for number, row in self._rows.items() if not row.note.done]

    # ---- processing of a row

    def _add(self, row: _Row) -> None:
        self._rows[row.note.number] = row
        self._queue.append(row)

    def _progress(self) -> None:
        """Starts queued rows while there is room, and emits finished ones. Called after each event."""
        while self._queue and self._calls_running < self._waiting.concurrency:
            self._begin(self._queue.popleft())
        self._emit()
        letters = self._failures.take()
        if letters is not None:
            self.out.emit(letters, DEAD_LETTERS)
        self.ctx.hold(bool(self._rows), len(self._rows) >= self._waiting.concurrency)

    def _begin(self, row: _Row) -> None:
        self._calls_running += 1
        note = row.note
        if not note.began:
            note.began = True
            if self._waiting.timeout_us is not None:
                note.deadline_us = self.ctx.time.now() + self._waiting.timeout_us
        if note.deadline_us is not None:
            self._set_alarm(note.deadline_us, row)
        context = {"ctx": self._context_of(row)} if self._wants_ctx else {}
        row.coroutine = _collected(self._fn(row.record, **context))
        self._resume(row)

    def _context_of(self, row: _Row) -> AsyncContext:
        metrics = partial(self._metrics.collecting, row.measure)
        return AsyncContext(self.ctx, row.note.origin, row.history, metrics)

    def _resume(self, row: _Row, value: Any = None, error: str | None = None) -> None:
        """Runs the row's coroutine until it awaits an answer that is not in its history."""
        coroutine = row.coroutine
        assert coroutine is not None
        while True:
            try:
                awaited = coroutine.send(value) if error is None else coroutine.throw(ServiceError(error))
            except StopIteration as end:
                self._finish(row, end.value)
                return
            except Interrupted:
                raise
            except BaseException as problem:  # noqa: BLE001 - whatever user code raises is the row's failure
                self._fail(row, _explained(problem))
                return
            if not isinstance(awaited, Awaited):
                self._fail(row, UserCodeError(_FOREIGN))
                return
            if not row.history.repeating:
                break
            value, error = (*row.history.next(), None)[:2]
        self._wait(row, awaited)

    def _wait(self, row: _Row, awaited: Awaited[Any]) -> None:
        if awaited.service != SLEEP:
            self.ctx.start_call(row.note.number, awaited.service, awaited.question)
            return
        wake_us = row.note.wake_us
        if wake_us is None:
            row.note.wake_us = wake_us = self.ctx.time.now() + awaited.question
        self._set_alarm(wake_us, row)

    def _finish(self, row: _Row, result: Any) -> None:
        try:
            chosen = truth_of(result) if self._kind == "filter" else result
            row.results = list(result or ()) if self._kind == "flat_map" else [chosen]
        except Interrupted:
            raise
        except BaseException as problem:  # noqa: BLE001 - what a result raises when it is read is the row's failure
            self._fail(row, problem)
            return
        self._end(row)
        self._done.append(row)

    def _fail(self, row: _Row, problem: BaseException) -> None:
        assert row.coroutine is not None
        row.coroutine.close()
        self._failures.add(row.batch, row.position, problem, self._fn, row.note.origin)
        self._end(row)
        del self._rows[row.note.number]

    def _end(self, row: _Row) -> None:
        self._calls_running -= 1
        self.ctx.cancel_call(row.note.number)
        for at in (row.note.deadline_us, row.note.wake_us):
            if at is not None:
                self._clear_alarm(at, row)
        for definition, amount in () if row.is_counted else row.measured:
            self.ctx.measure(definition, amount)
        row.note.done, row.coroutine = True, None

    def _set_alarm(self, at: int, row: _Row) -> None:
        self._alarms.setdefault(at, set()).add(row.note.number)
        self.ctx.set_timer(at)

    def _clear_alarm(self, at: int, row: _Row) -> None:
        numbers = self._alarms.get(at)
        if numbers is None:
            return
        numbers.discard(row.note.number)
        if not numbers:
            del self._alarms[at]
            self.ctx.clear_timer(at)

    # ---- results

    def _emit(self) -> None:
        """Emits the results of all rows that may leave, together."""
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
        except BaseException:  # noqa: BLE001 - see _finish
            batches = self._encoded([result for row in leaving if self._fits(row) for result in row.results])
        for batch in batches:
            self.out.emit(batch, RESULTS)

    def _leaving(self) -> list[_Row]:
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

    def _fits(self, row: _Row) -> bool:
        try:
            encode(row.results, self._schema)
        except FieldError as misfit:
            failure = misfit_of(misfit, row.results[0], self._kind)
            self._failures.add(row.batch, row.position, failure, self._fn, row.note.origin)
            return False
        except Interrupted:
            raise
        except BaseException as problem:  # noqa: BLE001 - see _finish
            self._failures.add(row.batch, row.position, problem, self._fn, row.note.origin)
            return False
        return True

    # ---- state

    def tables(self, inputs: Sequence[pa.Schema]) -> Mapping[str, pa.Schema]:
        return {"rows": grouped_schema(inputs[0].append(pa.field(_STATE_COLUMN, pa.binary())))}

    def snapshot(self) -> OperatorState:
        values = {"next": self._next, "marks": [list(mark) for mark in self._marks]}
        if not self._rows:
            return OperatorState(values=values)
        rows = list(self._rows.values())
        groups = [self.ctx.groups[row.note.number % len(self.ctx.groups)] for row in rows]
        kept = concat([row.batch.slice(row.position, 1) for row in rows])
        kept = kept.append_column(_STATE_COLUMN, pa.array([msgspec.msgpack.encode(row.note) for row in rows]))
        return OperatorState({"rows": [Chunk(kept.append_column(GROUP_COLUMN, pa.array(groups, pa.int32())))]}, values)

    def restore(self, parts: Sequence[OperatorState]) -> None:
        self._clear()
        known = [part.values["marks"] for part in parts] if self.ctx.watermark != MIN_TIME else []
        self._marks.extend((number, at) for marks in known for number, at in marks)
        self._next = max((int(part.values["next"]) for part in parts), default=0)
        for chunk in stored(parts, "rows"):
            self._restore_rows(chunk.rows, renumber=len(parts) > 1)
        self._queue = deque(sorted(self._queue, key=lambda row: not row.note.began))
        while self._queue and self._queue[0].note.began:
            self._restart(self._queue.popleft())
        if self._queue and self._calls_running < self._waiting.concurrency:
            self.ctx.set_timer(0)  # at a new parallelism there may be room but no running row that triggers _progress
        self.ctx.hold(bool(self._rows), len(self._rows) >= self._waiting.concurrency)

    def _restore_rows(self, rows: pa.RecordBatch, renumber: bool) -> None:
        """Adds the rows of a snapshot that belong to this instance."""
        groups: list[int] = rows.column(GROUP_COLUMN).to_pylist()  # type: ignore[assignment]
        notes: list[bytes] = rows.column(_STATE_COLUMN).to_pylist()  # type: ignore[assignment]
        plain = rows.drop_columns([_STATE_COLUMN, GROUP_COLUMN])
        records = [record for part in decode(plain, self._row_type or record_type(plain.schema)) for record in part]
        for position, (group, encoded, record) in enumerate(zip(groups, notes, records, strict=True)):
            if group in self.ctx.groups:
                note = msgspec.msgpack.decode(encoded, type=_Note)
                if renumber:
                    note.number, self._next = self._next, self._next + 1
                self._add(_Row(note, plain, position, record))

    def _restart(self, row: _Row) -> None:
        """Restarts a row's coroutine. With the same answers it must reach the same ``await``, or its end, as before."""
        was_done, row.note.done = row.note.done, False
        row.is_counted = was_done
        self._begin(row)
        if row.note.done != was_done or row.history.repeating or row.note.number not in self._rows:
            raise DivergenceError(
                f"operator {self.ctx.operator!r}: its function did not reach the same await when it was restarted "
                "with the same answers: find out why with 'clonos check'"
            )


_FOREIGN = (
    "an async function may await ctx.http, ctx.call and ctx.sleep, and coroutines that await only those: a replay "
    "cannot repeat the choices of an event loop"
)


def _explained(problem: BaseException) -> BaseException:
    """Replaces an error of asyncio, which is misleading since no event loop runs here, by one that names the cause."""
    trace = problem.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    raised_in = trace.tb_frame.f_globals.get("__name__", "") if trace is not None else ""
    if not raised_in.startswith("asyncio."):
        return problem
    return UserCodeError(f"{_FOREIGN} ({problem})").with_traceback(problem.__traceback__)


async def _collected(given: Any) -> Any:
    """The result of a coroutine, or the list of all values that an asynchronous generator yields."""
    if inspect.isasyncgen(given):
        return [result async for result in given]
    return await given
