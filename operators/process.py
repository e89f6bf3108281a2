"""Process functions: user code with keyed state and timers, called row by row for one or two inputs (P4).

Order. Without ``in_order``, rows are processed as they arrive, and event-time timers fire when the watermark reaches
them. With it, rows wait for the watermark and are processed in the order of event time together with the timers: a
timer fires after the rows before its time, and before the rows at its time. At equal times, left rows precede right
rows. Timers of one time fire in the order of keys, then of names. At the end of all input, every event-time timer that
is set fires; timers that these calls set do not. Processing-time timers that are still set then never fire, since a job
does not wait for them at the end of a bounded input.

Failures. A call that raises stops the job. If failures are caught, it becomes a dead letter instead and is rolled back:
its results are dropped, and the state and timers of its key are reset to those before the call. A timer whose call
fails counts as fired. Effects outside of declared state, such as requests to a service, are not undone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from clonos_py.model.errors import GraphError, Interrupted, UserCodeError
from clonos_py.model.operators import Operator, OperatorContext, Output
from clonos_py.model.processes import ProcessInput
from clonos_py.model.record import Record
from clonos_py.model.state import OperatorState
from clonos_py.model.times import MAX_TIME, MIN_TIME
from clonos_py.operators.failures import RowFailures, as_text, row_text, shortened
from clonos_py.operators.key_states import KeyStates
from clonos_py.operators.keyed_chunks import grouped_schema, owned, stored
from clonos_py.operators.opening import call_open, close, copied
from clonos_py.operators.own_values import own_entry
from clonos_py.operators.process_functions import BroadcastProcess, CoProcess, KeyedFunction, Process
from clonos_py.operators.process_inputs import GivenRows, InputRows, in_order
from clonos_py.operators.process_keys import ProcessKeys
from clonos_py.operators.process_results import ProcessResults
from clonos_py.operators.process_state import (
    NO_KEY,
    Cell,
    ListState,
    MapState,
    Timer,
    broadcast_state,
    event_timer,
    list_state,
    map_state,
    processing_timer,
    state,
)
from clonos_py.operators.process_timers import TimerQueue
from clonos_py.services.context import Context

__all__ = [
    "BroadcastProcess",
    "CoProcess",
    "ListState",
    "MapState",
    "Process",
    "ProcessOperator",
    "broadcast_state",
    "event_timer",
    "list_state",
    "map_state",
    "processing_timer",
    "state",
]

_AGAIN_MAX = 100_000
"""How often in a row the timers of a key may fire without time passing."""
_WAITING = ("rows", "right_rows")
"""By input: the state table of the rows that wait for the watermark."""


class _Before(NamedTuple):
    """The state before a call of user code, for a rollback: its key's encoded cell, and the number of results by
    port."""

    state: bytes
    results: list[int]


class ProcessOperator(Operator):
    """Runs a process function, given as a class or an object, on the rows of its inputs (null is a key).

    Results go to the port that is their type's position in ``outputs``. With ``catch``, a row or timer on which the
    function fails becomes a dead letter, which goes to the port after these. Otherwise the first failure raises
    UserCodeError.
    """

    cell: Cell

    def __init__(
        self,
        process: type[KeyedFunction] | KeyedFunction,
        inputs: Sequence[ProcessInput],
        outputs: tuple[type[Record], ...],
        in_order: bool = False,
        catch: bool = False,
    ) -> None:
        self._given = process
        self._type = process if isinstance(process, type) else type(process)
        states, timers = self._type.declared_states, self._type.declared_timers.values()
        needs_time = in_order or any(state.ttl_us is not None for state in states.values())
        if needs_time and any(taken.time_column is None for taken in inputs):
            raise GraphError(f"{self._type.__name__} needs an event time for in_order or a ttl; give its source one")
        self._inputs = tuple(inputs)
        self._outputs = outputs
        self._catch = catch
        self._in_order = in_order
        self._event_timers = [t.name for t in timers if not t.processing_time]
        self._processing_timers = [t.name for t in timers if t.processing_time]
        self._ttl_us = min((s.ttl_us for s in states.values() if s.ttl_us is not None), default=None)

    @property
    def final(self) -> bool:
        return self._in_order or bool(self._event_timers)

    @property
    def has_processing_timers(self) -> bool:
        return bool(self._processing_timers)

    def open(self, ctx: OperatorContext, out: Output) -> None:
        super().open(ctx, out)
        self._keys = ProcessKeys(self._inputs[0].key)
        self._context = Context(ctx, self._key)
        self._rows = [InputRows(taken, ctx) for taken in self._inputs]
        self._results = ProcessResults(self._type.__name__, self._outputs)
        self._failures = RowFailures(ctx, self._catch)
        self._states = KeyStates(self._type)
        self._assigned: list[str] = []
        self._process = self._given() if isinstance(self._given, type) else copied(self._given)
        call_open(self._process, ctx)
        object.__setattr__(self._process, "_scope", self)
        self._calls = [getattr(self._process, method) for method in self._type.methods]
        self._begin()

    def close(self) -> None:
        """Closes the function. There is no current key, so attributes of the task may be assigned, as in ``open``."""
        object.__setattr__(self._process, "_scope", NO_KEY)
        close(self._process, self.ctx)

    def _begin(self) -> None:
        self._start_timers()
        self._now: int | None = None
        self._swept = MIN_TIME
        self._reached = self.ctx.watermark
        self._ending = False

    def _start_timers(self) -> None:
        self._event = TimerQueue(self._states.cells, self._event_timers)
        self._processing = TimerQueue(self._states.cells, self._processing_timers)
        self._armed: int | None = None
        self._arm()

    # What the process sees.

    sharing = False

    @property
    def shared(self) -> Cell:
        """What broadcast state is kept in."""
        raise UserCodeError("broadcast state is for a BroadcastProcess, behind .connect(rules.broadcast())")

    def _key(self) -> Any:
        return self._keys.value(self.cell.key)

    def time(self) -> int:
        """The time of the current row or timer, even if the watermark is already later. Never earlier than the previous
        watermark, so that results do not depend on when expired values are removed."""
        return self._reached if self._now is None else max(self._reached, self._now)

    def assigned(self, name: str) -> None:
        self._assigned.append(name)

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
            self._rows[side].put(rows)
            return
        for given in self._rows[side].given(rows):
            self._feed(side, given)
        self._flush()

    def on_watermark(self, watermark: int) -> int:
        if self._in_order:
            for side, given in in_order(self._rows, watermark):
                self._feed(side, given)
        self._ending = watermark == MAX_TIME
        self._fire(self._event, watermark)
        if self._ttl_us is not None and watermark - self._swept >= self._ttl_us // 4:
            self._states.expire(watermark)
            self._swept = watermark
        self._reached = watermark
        self._flush()
        return watermark

    def on_timer(self, at: int) -> None:
        self._fire(self._processing, at)
        self._armed = None
        self._arm()
        self._flush()

    def tables(self, inputs: Sequence[pa.Schema]) -> Mapping[str, pa.Schema]:
        return {table: grouped_schema(rows) for table, rows in zip(_WAITING, inputs, strict=False)}

    def snapshot(self) -> OperatorState:
        waiting = {table: rows.chunks() for table, rows in zip(_WAITING, self._rows, strict=False)}
        return OperatorState({"keys": self._states.chunks(), **waiting})

    def restore(self, parts: Sequence[OperatorState]) -> None:
        self._states.load(owned(stored(parts, "keys"), self.ctx.groups))
        self._begin()
        for table, rows in zip(_WAITING, self._rows, strict=False):
            rows.load(owned(stored(parts, table), self.ctx.groups))

    # How rows and timers reach the process.

    def _feed(self, side: int, given: GivenRows) -> None:
        call, position = self._calls[side], given.start + given.first
        for row, (record, key, group, time) in enumerate(zip(*given[:4], strict=True)):
            if self._in_order:
                self._fire(self._event, time)
            if given.failed and given.first + row in given.failed:
                error: BaseException | None = given.failed[given.first + row]
            else:
                self._enter(side, key, group)
                self._now = time
                self._context.at_row(position + row, time)
                error = self._failure(call, record, self._context)
            if error is not None:
                text = row_text(given.rows, given.first + row)
                self._failures.add_subject(f"record {shortened(text)}", text, position + row, error, call)

    def _enter(self, side: int, key: bytes, group: int) -> None:
        """The next row is of this key."""
        self.cell = self._states.cell(key, group)

    def _fire(self, queue: TimerQueue, up_to: int) -> None:
        latest, fired, again = None, MIN_TIME, 0
        while (due := queue.pop(up_to)) is not None:
            at, self.cell, name = due
            self._states.touch(self.cell)
            again = again + 1 if self.cell is latest and at <= fired else 0
            latest, fired = self.cell, at
            if again > _AGAIN_MAX:
                self._stop(queue, name, at)
                continue
            self._now = at if queue is self._event else None
            self._context.at_row(-1, self._now)
            callback = getattr(self._process, self._type.declared_timers[name].callback)
            error = self._failure(callback, self._context)
            if error is not None:
                self._fail_timer(name, at, error, callback)

    def _stop(self, queue: TimerQueue, name: str, at: int) -> None:
        """Clears the key's timers of one kind, which would fire for ever, and reports it."""
        for other in self._event_timers if queue is self._event else self._processing_timers:
            queue.clear(self.cell, other)
        self.ctx.count("timers_stopped", 1)
        callback = getattr(self._process, self._type.declared_timers[name].callback)
        problem = UserCodeError(
            f"process {self._type.__name__} has set its timers {_AGAIN_MAX} times in a row to the time at which they "
            "fire, or to an earlier one, so they would fire for ever: set a timer to a later time"
        )
        self._fail_timer(name, at, problem, callback)

    def _fail_timer(self, name: str, at: int, error: BaseException, callback: Callable[..., Any]) -> None:
        key = self._keys.by_name(self.cell.key)
        text = as_text({"timer": name, "at": at, "key": key})
        subject = f"timer {name!r} at {at} of key {shortened(as_text(key))}"
        self._failures.add_subject(subject, text, -1, error, callback)

    def _failure(self, call: Callable[..., Any], *given: Any) -> BaseException | None:
        """Calls the process function and collects its results. Returns the error that it raised, or None. If failures
        are caught, a failed call is rolled back."""
        before = self._before() if self._catch else None
        try:
            self._results.take(call(*given))
            if self._assigned:
                self._own_assigned()
            if before is not None:
                self._check(before)
        except Interrupted:
            raise
        except BaseException as error:  # noqa: BLE001 - whatever user code raises is the failure of the row or timer
            self._assigned.clear()
            if before is not None:
                self._undo(before)
            return error
        return None

    def _own_assigned(self) -> None:
        """Lets the key own what the call has assigned: a list that the function also keeps elsewhere, as in the state
        of another key, is copied. Until the call returns, the function may fill the list through its own name."""
        for name in self._assigned:
            own_entry(self.cell.values, name)
        self._assigned.clear()

    def _before(self) -> _Before:
        return _Before(self._states.encoded(self.cell), self._results.counts)

    def _check(self, before: _Before) -> None:
        """Raises an error now for state or results that would otherwise fail later, at a checkpoint or on the way to
        the next operator."""
        self._states.encoded(self.cell)
        self._results.check(before.results)

    def _undo(self, before: _Before) -> None:
        self._results.truncate(before.results)
        timers = self._states.revert(self.cell, before.state)
        for queue, names in ((self._event, self._event_timers), (self._processing, self._processing_timers)):
            for name in names:
                if name in timers:
                    queue.set(self.cell, name, timers[name])
                else:
                    queue.clear(self.cell, name)
        self._arm()

    def _arm(self) -> None:
        """Sets the operator's single engine timer to the time of the next timer. It depends only on the state, so a
        replay sets the same."""
        at = self._processing.next_at()
        if at == self._armed:
            return
        if self._armed is not None:
            self.ctx.clear_timer(self._armed)
        if at is not None:
            self.ctx.set_timer(at)
        self._armed = at

    def _flush(self) -> None:
        for batch, port in self._results.batches(self.ctx.operator):
            self.out.emit(batch, port)
        letters = self._failures.take()
        if letters is not None:
            self.out.emit(letters, len(self._outputs))
