"""Process functions: user code with keyed state and timers, row by row (P4).

Order. Without ``in_order`` rows are taken as they come and event timers fire when the watermark reaches them. With it,
rows wait for the watermark and go in the order of event time together with the timers; a timer fires after the rows
before its time and before those at it. Timers of one time fire in the order of keys, then of names. At the end of all
input every event timer that is set fires; what those calls set does not. Processing-time timers that are still set
then never fire: time that has not come when a bounded input ends is not waited for.

Failures. A call that raises stops the job, or, if failures are caught, becomes a dead letter and leaves no trace: its
results are withdrawn, and the state and timers of its key are what they were before it; a timer that fails counts as
fired. What a call did outside of declared state, such as requests to a service, has happened.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from clonos_py.columns.keys import key_groups
from clonos_py.columns.views import fixed
from clonos_py.model.errors import GraphError, Interrupted, UserCodeError
from clonos_py.model.operators import Operator, OperatorContext, Output
from clonos_py.model.record import Record, record_type
from clonos_py.model.record_codec import SLICE_ROWS, FieldError, decode, encode
from clonos_py.model.state import GROUP_COLUMN, OperatorState
from clonos_py.model.times import MAX_TIME, MIN_TIME
from clonos_py.operators.event_time_buffer import EventTimeBuffer
from clonos_py.operators.failures import RowFailures, as_text, row_text, shortened
from clonos_py.operators.key_states import KeyStates, encoded_keys
from clonos_py.operators.keyed_chunks import owned, stored
from clonos_py.operators.pairs import matchable
from clonos_py.operators.process_state import (
    Cell,
    ListState,
    MapState,
    Process,
    Timer,
    event_timer,
    list_state,
    map_state,
    processing_timer,
    state,
)
from clonos_py.operators.process_timers import TimerQueue
from clonos_py.services.context import Context

__all__ = [
    "ListState",
    "MapState",
    "Process",
    "ProcessOperator",
    "event_timer",
    "list_state",
    "map_state",
    "processing_timer",
    "state",
]


class _Before(NamedTuple):
    """What a call of user code may change: the cell of its key, and how many results there are by port."""

    state: bytes
    results: list[int]


class ProcessOperator(Operator):
    """Runs ``process`` for rows keyed by ``keys`` (null is a key), given as ``row_type`` (None: with all columns).

    Results go to the port of their type's position in ``outputs``; the port behind these is that of dead letters, which
    a row or timer becomes on which the process fails, with ``catch``. Otherwise the first failure raises UserCodeError.
    """

    cell: Cell

    def __init__(
        self,
        process: type[Process[Any, Any]],
        keys: Sequence[str],
        row_type: type[Record] | None,
        outputs: tuple[type[Record], ...],
        in_order: bool = False,
        time_column: str | None = None,
        catch: bool = False,
    ) -> None:
        if time_column is None and (in_order or any(s.ttl_us is not None for s in process.declared_states.values())):
            raise GraphError(f"{process.__name__} needs an event time for in_order or a ttl; give its source one")
        self._type = process
        self._keys = list(keys)
        self._row_type = row_type
        self._ports = {output: port for port, output in enumerate(outputs)}
        self._catch = catch
        self._in_order = in_order
        self._time = time_column
        self._event_timers = [t.name for t in process.declared_timers.values() if not t.processing_time]
        self._processing_timers = [t.name for t in process.declared_timers.values() if t.processing_time]
        self._ttl_us = min((s.ttl_us for s in process.declared_states.values() if s.ttl_us is not None), default=None)

    def open(self, ctx: OperatorContext, out: Output) -> None:
        super().open(ctx, out)
        self._context = Context(ctx)
        self._process = self._type()
        object.__setattr__(self._process, "_scope", self)
        self._results: list[list[Any]] = [[] for _ in self._ports]
        self._failures = RowFailures(ctx, self._catch)
        self._states = KeyStates(self._type)
        self._begin()

    def _begin(self) -> None:
        self._buffer = EventTimeBuffer(self._time or "", self._keys, self.ctx.key_groups)
        self._start_timers()
        self._now: int | None = None
        self._swept = MIN_TIME
        self._ending = False

    def _start_timers(self) -> None:
        self._event = TimerQueue(self._states.cells, self._event_timers)
        self._processing = TimerQueue(self._states.cells, self._processing_timers)
        self._armed: int | None = None
        self._arm()

    # What the process sees.

    def time(self) -> int:
        """That of the row or timer at work, if these come in the order of time. Else never earlier than the watermark,
        so that it makes no difference when expired values are removed."""
        if self._in_order and self._now is not None:
            return self._now
        return max(self.ctx.watermark, MIN_TIME if self._now is None else self._now)

    def set_timer(self, timer: Timer, at: int) -> None:
        if timer.processing_time:
            self._processing.set(self.cell, timer.name, at)
            self._arm()
        elif not self._ending:
            self._event.set(self.cell, timer.name, at)

    def clear_timer(self, timer: Timer) -> None:
        queue = self._processing if timer.processing_time else self._event
        queue.clear(self.cell, timer.name)
        self._arm()

    # What the task calls.

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        if self._in_order:
            self._buffer.add(self._on_time(matchable(rows, [], [self._time or ""], self.ctx.count)))
        else:
            self._feed(rows)
            self._flush()

    def on_watermark(self, watermark: int) -> int:
        due = self._buffer.take(watermark) if self._in_order else None
        if due is not None:
            self._feed(due)
        self._ending = watermark == MAX_TIME
        self._fire(self._event, watermark)
        if self._ttl_us is not None and watermark - self._swept >= self._ttl_us // 4:
            self._states.expire(watermark)
            self._swept = watermark
        self._flush()
        return watermark

    def on_timer(self, at: int) -> None:
        self._fire(self._processing, at)
        self._armed = None
        self._arm()
        self._flush()

    def snapshot(self) -> OperatorState:
        return OperatorState({"keys": self._states.chunks(), "rows": self._buffer.chunks()})

    def restore(self, parts: Sequence[OperatorState]) -> None:
        self._states.load(owned(stored(parts, "keys"), self.ctx.groups))
        self._begin()
        self._buffer.load(owned(stored(parts, "rows"), self.ctx.groups))

    # How rows and timers reach the process.

    def _on_time(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        on_time = fixed(rows.column(self._time or "")) >= self.ctx.watermark
        late = rows.num_rows - int(np.count_nonzero(on_time))
        if late:
            self.ctx.count("late_rows", late)
            rows = rows.take(np.flatnonzero(on_time))
        return rows

    def _feed(self, rows: pa.RecordBatch) -> None:
        for start in range(0, rows.num_rows, SLICE_ROWS):
            self._feed_slice(rows.slice(start, SLICE_ROWS), start)

    def _feed_slice(self, rows: pa.RecordBatch, start: int) -> None:
        keys = encoded_keys(rows, self._keys)
        groups = key_groups(rows, self._keys, self.ctx.key_groups).tolist()
        rows = rows.select([name for name in rows.schema.names if name != GROUP_COLUMN])
        times: list[Any] = [None] * rows.num_rows if self._time is None else rows.column(self._time).to_pylist()
        records = next(decode(rows, self._row_type or record_type(rows.schema)))
        for row, (record, key, group, time) in enumerate(zip(records, keys, groups, times, strict=True)):
            if self._in_order:
                self._fire(self._event, time)
            self.cell = self._states.cell(key, group)
            self._now = time
            self._context.at_row(start + row, time)
            error = self._failure(self._process.on_row, record, self._context)
            if error is not None:
                text = row_text(rows, row)
                subject = f"record {shortened(text)}"
                self._failures.add_subject(subject, text, start + row, error, self._process.on_row)

    def _fire(self, queue: TimerQueue, up_to: int) -> None:
        while (due := queue.pop(up_to)) is not None:
            at, self.cell, name = due
            self._states.touch(self.cell)
            self._now = at if queue is self._event else None
            self._context.at_row(-1, self._now)
            callback = getattr(self._process, self._type.declared_timers[name].callback)
            error = self._failure(callback, self._context)
            if error is not None:
                key = dict(zip(self._keys, msgspec.msgpack.decode(self.cell.key), strict=True))
                text = as_text({"timer": name, "at": at, "key": key})
                subject = f"timer {name!r} at {at} of key {shortened(as_text(key))}"
                self._failures.add_subject(subject, text, -1, error, callback)

    def _failure(self, call: Callable[..., Any], *given: Any) -> BaseException | None:
        """Calls the process and takes its results. What it raised, None if nothing; then nothing has changed, if
        failures are caught."""
        before = self._before() if self._catch else None
        try:
            self._take(call(*given))
            if before is not None:
                self._check(before)
        except Interrupted:
            raise
        except BaseException as error:  # noqa: BLE001 - whatever user code raises is the failure of the row or timer
            if before is not None:
                self._undo(before)
            return error
        return None

    def _before(self) -> _Before:
        return _Before(self._states.encoded(self.cell), [len(results) for results in self._results])

    def _check(self, before: _Before) -> None:
        """Raises UserCodeError for what would fail only later, at a checkpoint or on the way to the next operator."""
        self._states.encoded(self.cell)
        for (output, port), count in zip(self._ports.items(), before.results, strict=True):
            if len(self._results[port]) > count:
                encode(self._results[port][count:], output.schema())

    def _undo(self, before: _Before) -> None:
        for results, count in zip(self._results, before.results, strict=True):
            del results[count:]
        timers = self._states.revert(self.cell, before.state)
        for queue, names in ((self._event, self._event_timers), (self._processing, self._processing_timers)):
            for name in names:
                if name in timers:
                    queue.set(self.cell, name, timers[name])
                else:
                    queue.clear(self.cell, name)
        self._arm()

    def _arm(self) -> None:
        """The engine knows one timer of ours, the next: a function of the state, as replay wants it."""
        at = self._processing.next_at()
        if at == self._armed:
            return
        if self._armed is not None:
            self.ctx.clear_timer(self._armed)
        if at is not None:
            self.ctx.set_timer(at)
        self._armed = at

    # Where results go.

    def _take(self, given: Any) -> None:
        if given is None:
            return
        for result in [given] if isinstance(given, Record) else list(given):
            port = self._ports.get(type(result))
            if port is None:
                known = ", ".join(output.__name__ for output in self._ports)
                raise UserCodeError(f"{self._type.__name__} gave {result!r}, which is none of its outputs: {known}")
            self._results[port].append(result)

    def _flush(self) -> None:
        for output, port in self._ports.items():
            results, self._results[port] = self._results[port], []
            for start in range(0, len(results), SLICE_ROWS):
                self.out.emit(self._encoded(results[start : start + SLICE_ROWS], output), port)
        letters = self._failures.take()
        if letters is not None:
            self.out.emit(letters, len(self._ports))

    def _encoded(self, results: list[Any], output: type[Record]) -> pa.RecordBatch:
        try:
            return encode(results, output.schema())
        except FieldError as error:
            raise UserCodeError(f"operator {self.ctx.operator!r} gave {results[error.row]!r}: {error}") from error
