"""The calls of an ``async def`` function: one for each of many rows at a time (D4).

At most ``concurrency`` rows are processed at a time, each in a coroutine. The operator itself resumes a coroutine when
a call is answered or a timer fires; both are events of the task's log. So a replay resumes coroutines in the same
order.

A snapshot holds the unfinished rows, each with its answer history. A restore restarts their coroutines and replays the
history, which brings them to the same ``await``.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import Any

import msgspec
import numpy.typing as npt
import pyarrow as pa

from clonos_py.columns.views import concat
from clonos_py.model.calls import Waiting
from clonos_py.model.errors import DivergenceError, Interrupted, ServiceError, UserCodeError
from clonos_py.model.hidden import hidden
from clonos_py.model.operators import Operator, OperatorContext, Output
from clonos_py.model.record import Record, record_type
from clonos_py.model.record_codec import decode
from clonos_py.model.state import GROUP_COLUMN, Chunk, OperatorState
from clonos_py.model.user_metrics import MetricDefinition
from clonos_py.operators.failures import RowFailures
from clonos_py.operators.keyed_chunks import grouped_schema
from clonos_py.operators.opening import close, opened
from clonos_py.operators.rows import DEAD_LETTERS
from clonos_py.services.async_context import SLEEP, AnswerHistory, AsyncContext, Awaited
from clonos_py.services.keys import Origin
from clonos_py.services.metrics import FunctionMetrics

_STATE_COLUMN = hidden("state")


class RowNote(msgspec.Struct, array_like=True):
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


class AsyncRow:
    """A row for which the function is called. It is row ``position`` of ``batch``."""

    def __init__(self, note: RowNote, batch: pa.RecordBatch, position: int, record: Any) -> None:
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


class AsyncCalls(Operator):
    """The base of operators that call ``fn`` for rows of ``row_type`` (None: a record with all columns). A row that is
    not done within ``waiting.timeout_us`` fails. Subclasses say what becomes of results and failures."""

    def __init__(
        self, fn: Callable[..., Any], row_type: type[Record] | None, wants_ctx: bool, waiting: Waiting, catch: bool
    ) -> None:
        self._fn, self._row_type = fn, row_type
        self._wants_ctx, self._waiting, self._catch = wants_ctx, waiting, catch

    def open(self, ctx: OperatorContext, out: Output) -> None:
        super().open(ctx, out)
        self._fn = opened(self._fn, ctx)
        self._failures = RowFailures(ctx, self._catch)
        self._metrics = FunctionMetrics(ctx.measure)
        self._clear()

    def _clear(self) -> None:
        self._rows: dict[int, AsyncRow] = {}
        """Unfinished rows by number, in order."""
        self._queue: deque[AsyncRow] = deque()
        self._alarms: dict[int, set[int]] = {}
        self._calls_running = 0
        self._next = 0

    def close(self) -> None:
        for row in self._rows.values():
            if row.coroutine is not None:
                row.coroutine.close()
        close(self._fn, self.ctx)

    # ---- events

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

    def row_of(self, number: int) -> tuple[pa.RecordBatch, int]:
        """For observers: where a row with this number is, as a batch and a position in it."""
        return self._rows[number].batch, self._rows[number].position

    @property
    def unfinished(self) -> list[int]:
        """For observers: the numbers of the rows whose function has not returned, or was not called yet."""
        return [number for number, row in self._rows.items() if not row.note.done]

    # ---- what subclasses decide

    def _call(self, row: AsyncRow, services: dict[str, Any]) -> Any:
        """Calls the function for a row. ``services``: its ``ctx``, if it wants that."""
        raise NotImplementedError

    def _read(self, row: AsyncRow, result: Any) -> Any:
        """What the function has returned, as ``_finished`` takes it. An error is the row's failure."""
        raise NotImplementedError

    def _finished(self, row: AsyncRow, found: Any) -> None:
        """The row is done."""
        raise NotImplementedError

    def _failed(self, row: AsyncRow, problem: BaseException) -> None:
        """The function has failed for this row, which is no longer among the unfinished ones."""
        raise NotImplementedError

    def _emit(self) -> None:
        """Emits what may leave, and states how much is held. Called after each event."""
        raise NotImplementedError

    def _may_begin(self) -> bool:
        """Whether another call may begin now."""
        return True

    # ---- processing of a row

    def _add(self, row: AsyncRow) -> None:
        self._rows[row.note.number] = row
        self._queue.append(row)

    def _progress(self) -> None:
        """Starts queued rows while there is room, and emits finished ones. Called after each event."""
        while self._queue and self._has_room and self._may_begin():
            self._begin(self._queue.popleft())
        self._emit()
        letters = self._failures.take()
        if letters is not None:
            self.out.emit(letters, DEAD_LETTERS)

    @property
    def _has_room(self) -> bool:
        return self._calls_running < self._waiting.concurrency

    def _begin(self, row: AsyncRow) -> None:
        self._calls_running += 1
        note = row.note
        if not note.began:
            note.began = True
            if self._waiting.timeout_us is not None:
                note.deadline_us = self.ctx.time.now() + self._waiting.timeout_us
        if note.deadline_us is not None:
            self._set_alarm(note.deadline_us, row)
        services = {"ctx": self._context_of(row)} if self._wants_ctx else {}
        row.coroutine = _collected(self._call(row, services))
        self._resume(row)

    def _context_of(self, row: AsyncRow) -> AsyncContext:
        metrics = partial(self._metrics.collecting, row.measure)
        return AsyncContext(self.ctx, row.note.origin, row.history, metrics)

    def _resume(self, row: AsyncRow, value: Any = None, error: str | None = None) -> None:
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

    def _wait(self, row: AsyncRow, awaited: Awaited[Any]) -> None:
        if awaited.service != SLEEP:
            self.ctx.start_call(row.note.number, awaited.service, awaited.question)
            return
        wake_us = row.note.wake_us
        if wake_us is None:
            row.note.wake_us = wake_us = self.ctx.time.now() + awaited.question
        self._set_alarm(wake_us, row)

    def _finish(self, row: AsyncRow, result: Any) -> None:
        try:
            found = self._read(row, result)
        except Interrupted:
            raise
        except BaseException as problem:  # noqa: BLE001 - what a result raises when it is read is the row's failure
            self._fail(row, problem)
            return
        self._end(row)
        self._finished(row, found)

    def _fail(self, row: AsyncRow, problem: BaseException) -> None:
        assert row.coroutine is not None
        row.coroutine.close()
        self._end(row)
        del self._rows[row.note.number]
        self._failed(row, problem)

    def _end(self, row: AsyncRow) -> None:
        self._calls_running -= 1
        self.ctx.cancel_call(row.note.number)
        for at in (row.note.deadline_us, row.note.wake_us):
            if at is not None:
                self._clear_alarm(at, row)
        for definition, amount in () if row.is_counted else row.measured:
            self.ctx.measure(definition, amount)
        row.note.done, row.coroutine = True, None

    def _set_alarm(self, at: int, row: AsyncRow) -> None:
        self._alarms.setdefault(at, set()).add(row.note.number)
        self.ctx.set_timer(at)

    def _clear_alarm(self, at: int, row: AsyncRow) -> None:
        numbers = self._alarms.get(at)
        if numbers is None:
            return
        numbers.discard(row.note.number)
        if not numbers:
            del self._alarms[at]
            self.ctx.clear_timer(at)

    # ---- state

    def _stored_rows(self, groups: Callable[[pa.RecordBatch], npt.NDArray[Any]]) -> list[Chunk]:
        """The unfinished rows, for a snapshot. ``groups``: the key group of each of these rows."""
        if not self._rows:
            return []
        rows = concat([row.batch.slice(row.position, 1) for row in self._rows.values()])
        of_rows = pa.array(groups(rows), pa.int32())
        notes = pa.array([msgspec.msgpack.encode(row.note) for row in self._rows.values()], pa.binary())
        return [Chunk(rows.append_column(_STATE_COLUMN, notes).append_column(GROUP_COLUMN, of_rows))]

    def _take_over(self, parts: Sequence[OperatorState], table: str) -> list[dict[int, int]]:
        """Adds the rows of a snapshot that belong to this instance, and restarts those that had begun. Returns by part
        the numbers of its rows now, by those that they had."""
        self._next = max((int(part.values["next"]) for part in parts), default=0)
        numbers = [self._restored(part.tables.get(table, ()), renumber=len(parts) > 1) for part in parts]
        self._queue = deque(sorted(self._queue, key=lambda row: not row.note.began))
        while self._queue and self._queue[0].note.began:
            self._restart(self._queue.popleft())
        return numbers

    def _restored(self, chunks: Iterable[Chunk], renumber: bool) -> dict[int, int]:
        numbers: dict[int, int] = {}
        for chunk in chunks:
            if chunk.of_others:
                continue
            rows = chunk.rows
            groups: list[int] = rows.column(GROUP_COLUMN).to_pylist()  # type: ignore[assignment]
            notes: list[bytes] = rows.column(_STATE_COLUMN).to_pylist()  # type: ignore[assignment]
            plain = rows.drop_columns([_STATE_COLUMN, GROUP_COLUMN])
            records = [record for part in decode(plain, self._row_type or record_type(plain.schema)) for record in part]
            for position, (group, encoded, record) in enumerate(zip(groups, notes, records, strict=True)):
                if group in self.ctx.groups:
                    note = msgspec.msgpack.decode(encoded, type=RowNote)
                    before = note.number
                    if renumber:
                        note.number, self._next = self._next, self._next + 1
                    numbers[before] = note.number
                    self._add(AsyncRow(note, plain, position, record))
        return numbers

    def _restart(self, row: AsyncRow) -> None:
        """Restarts a row's coroutine. With the same answers it must reach the same ``await``, or its end, as before."""
        was_done, row.note.done = row.note.done, False
        row.is_counted = was_done
        self._begin(row)
        if row.note.done != was_done or row.history.repeating or row.note.number not in self._rows:
            raise DivergenceError(
                f"operator {self.ctx.operator!r}: its function did not reach the same await when it was restarted "
                "with the same answers: find out why with 'clonos check'"
            )


def calls_schema(rows: pa.Schema) -> pa.Schema:
    """The columns in which unfinished rows are stored."""
    return grouped_schema(rows.append(pa.field(_STATE_COLUMN, pa.binary())))


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
