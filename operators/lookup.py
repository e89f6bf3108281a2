"""Enriches rows by an ``async def`` function of a key, with a cache of its answers.

A batch is divided by columns into rows whose key has a cached answer, and keys that are unknown. Each unknown key is
asked once, in a coroutine as for other asynchronous functions (``async_calls``), and all rows with that key wait for
the same answer. A row with a cached answer calls no Python of its own.

Answers, the time and the pace of calls come from the log; cache and waiting rows are keyed state. So a replacement
gives the same rows, and asks nothing to which its predecessor had logged an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from clonos_py.columns.grouping import group
from clonos_py.columns.keys import key_groups
from clonos_py.columns.matching import with_keys
from clonos_py.columns.views import Ints, fixed
from clonos_py.model.calls import LookUpOptions
from clonos_py.model.errors import ServiceError
from clonos_py.model.hidden import hidden, is_hidden
from clonos_py.model.joins import JoinColumns, JoinType
from clonos_py.model.operators import OperatorContext, Output
from clonos_py.model.record import Record, record_type
from clonos_py.model.record_codec import FieldError, decode_each, encode
from clonos_py.model.state import Chunk, OperatorState
from clonos_py.model.times import MIN_TIME
from clonos_py.operators.answer_cache import (
    UNKNOWN,
    AnswerCache,
    answer_schema,
    answers_of,
    cache_schema,
    nulls,
    of_schema,
    places_of,
)
from clonos_py.operators.async_calls import AsyncCalls, AsyncRow, RowNote, calls_schema
from clonos_py.operators.held_watermarks import HeldWatermarks
from clonos_py.operators.keyed_chunks import grouped_schema, owned, with_groups
from clonos_py.operators.pairs import NO_ROW, Pairs, looked_up
from clonos_py.operators.rate_limit import RateLimit
from clonos_py.operators.rows import misfit_of
from clonos_py.operators.waiting_rows import DUE, WaitingRows
from clonos_py.services.async_context import SLEEP, Awaited
from clonos_py.services.keys import Origin, origin_of

_CACHE, _QUESTIONS, _WAITING = "cache", "questions", "waiting"
_NUMBER, *_ORIGIN = map(hidden, ("number", "channel", "sequence", "row"))
"""int64 columns of waiting rows: their order, and the parts of their origin that dead letters name."""
_QUESTION = hidden("question")
_WAITING_ROWS_MAX = 65_536
"""With so many waiting rows the task takes no further ones."""
_BACKOFF_US, _BACKOFF_US_MAX = 100_000, 60_000_000


class LookUp(AsyncCalls):
    """Calls ``fn`` with the values of ``keys``, and pairs each row with the answer: a row with the columns ``answers``,
    or None. ``how``: inner drops rows without an answer, and those with a null key, which it counts; left keeps them.
    ``columns``: those of the results, see Pairs.

    A question that fails with a ServiceError is asked again ``retries`` times. The rows of one that fails are failures.
    """

    def __init__(
        self,
        keys: Sequence[str],
        fn: Callable[..., Any],
        wants_ctx: bool,
        answers: pa.Schema,
        columns: JoinColumns,
        schema: pa.Schema,
        options: LookUpOptions,
        how: JoinType = JoinType.INNER,
        on_error: Literal["fail", "catch"] = "fail",
    ) -> None:
        super().__init__(fn, None, wants_ctx, options.waiting, on_error == "catch")
        self._keys, self._options, self._how = list(keys), options, how
        self._pairs = Pairs(columns, schema, how)
        self._kept = self._pairs.needed(0, *keys)
        self._declared = answers
        self._answers = answer_schema([answers.field(name) for name in self._pairs.needed(1)])

    def open(self, ctx: OperatorContext, out: Output) -> None:
        self._cache = AnswerCache(_CACHE, self._keys, self._answers, self._options.cache_us, ctx.key_groups)
        super().open(ctx, out)

    def _clear(self) -> None:
        super()._clear()
        self._open: dict[tuple[Any, ...], int] = {}
        """By key: the question about it that has no answer yet."""
        self._asking: dict[int, list[WaitingRows]] = {}
        """By question: what waits for it."""
        self._held: list[WaitingRows] = []
        self._taken = 0
        self._watermarks = HeldWatermarks()
        self._limit = None if self._options.rate is None else RateLimit(self._options.rate)
        self._wake_us: int | None = None
        """When a timer fires for calls that wait for the limit."""

    # ---- events

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        kept = None if self._how.unmatched[0] else with_keys(rows, self._keys)
        if kept is not None:
            self.ctx.count("null_key_rows", rows.num_rows - len(kept))
            rows = rows.take(kept)
        if rows.num_rows:
            self._take(rows, np.arange(rows.num_rows) if kept is None else kept)
        self._progress()

    def on_timer(self, at: int) -> None:
        if at == self._wake_us:
            self._wake_us = None
        super().on_timer(at)

    def on_watermark(self, watermark: int) -> int:
        self._watermarks.add(self._taken, watermark)
        return self.released()

    def released(self) -> int:
        first = self._held[0] if self._held else None
        return self._watermarks.released(self._taken if first is None else _number(first.rows, _NUMBER, first.first))

    # ---- rows

    def _take(self, rows: pa.RecordBatch, numbers: Ints) -> None:
        """Takes rows, which have these numbers in their batch."""
        groups = group([rows.column(key) for key in self._keys], rows.num_rows)
        keys = rows.select(self._keys).take(groups.first)
        answers, places = self._cache.find(keys, self.ctx.time.now())
        unknown = np.flatnonzero(places == UNKNOWN)
        places[unknown] = NO_ROW
        if (named := with_keys(keys, self._keys)) is not None:
            unknown = np.intersect1d(unknown, named)
        if len(unknown) or self._held:
            asked, refused = self._ask(keys.take(unknown), numbers[groups.first[unknown]])
            questions = np.full(groups.size, DUE)
            questions[unknown] = asked
            kept = self._numbered(rows.select(self._kept), numbers)
            waiting = WaitingRows(kept, answers, places[groups.ids], questions[groups.ids])
            self._hold_rows(waiting, asked.tolist(), refused)
        else:
            self._give(rows, None, answers, places[groups.ids])
        self._taken += rows.num_rows

    def _numbered(self, rows: pa.RecordBatch, numbers: Ints) -> pa.RecordBatch:
        """Adds the columns by which waiting rows are told apart."""
        count = rows.num_rows
        channel, sequence = (np.full(count, part) for part in self.ctx.frame)
        columns = np.arange(self._taken, self._taken + count), channel, sequence, numbers
        for name, values in zip((_NUMBER, *_ORIGIN), columns, strict=True):
            rows = rows.append_column(name, pa.array(values, pa.int64()))
        return rows

    def _hold_rows(self, rows: WaitingRows, questions: Sequence[int], refused: Mapping[int, Exception]) -> None:
        self._held.append(rows)
        for question in questions:
            self._asking.setdefault(question, []).append(rows)
        for question, problem in refused.items():
            self._drop(question, problem)

    def _drop(self, question: int, problem: BaseException) -> None:
        """The rows of a question fail."""
        for waiting in self._asking.pop(question):
            rows = waiting.rows
            shown = rows.select([name for name in rows.schema.names if not is_hidden(name)])
            for row in waiting.drop(question).tolist():
                origin = Origin("", 0, *(_number(rows, part, row) for part in _ORIGIN))
                self._failures.add(shown, row, problem, self._fn, origin)

    def _emit(self) -> None:
        ordered = self._options.waiting.ordered
        for waiting in self._held:
            due = waiting.take_due(ordered)
            if len(due):
                self._give(waiting.rows, due, *waiting.answers(due))
            if ordered and waiting.count:
                break
        self._held = [waiting for waiting in self._held if waiting.count]
        self._hold()

    def _hold(self) -> None:
        many = sum(waiting.count for waiting in self._held) >= _WAITING_ROWS_MAX
        self.ctx.hold(bool(self._held), many or len(self._rows) >= self._options.waiting.concurrency)

    def _give(self, rows: pa.RecordBatch, positions: Ints | None, answers: pa.RecordBatch | None, places: Ints) -> None:
        """Emits the results of the rows at these positions (None: of all), in their order."""
        found = np.flatnonzero(places != NO_ROW)
        left, right = looked_up(self._how, (found, places[found]), len(places))
        if positions is not None:
            of_rows: Ints | None = positions[left]
        else:
            of_rows = None if len(left) == len(places) else left
        for batch in self._pairs.batches((rows, answers), (of_rows, right)):
            self.out.emit(batch)

    # ---- questions

    def _ask(self, keys: pa.RecordBatch, numbers: Ints) -> tuple[Ints, dict[int, Exception]]:
        """The question about each of these distinct keys, and by question, why it cannot be asked. ``numbers``: of the
        first row with each key."""
        questions = np.empty(keys.num_rows, np.int64)
        refused: dict[int, Exception] = {}

        def failed(at: int, error: Exception) -> None:
            questions[at] = question = self._next_question()
            refused[question] = error

        for part, positions in decode_each(keys, record_type(keys.schema), failed):
            for at, record in zip(positions, part, strict=True):
                key = _key_of(record)
                if key not in self._open:
                    self._open[key] = question = self._next_question()
                    self._add(AsyncRow(RowNote(question, origin_of(self.ctx, int(numbers[at]))), keys, at, record))
                questions[at] = self._open[key]
        return questions, refused

    def _next_question(self) -> int:
        self._next += 1
        return self._next - 1

    def _may_begin(self) -> bool:
        if self._limit is None:
            return True
        now_us = self.ctx.time.now()
        wait_us = self._limit.take(now_us)
        if wait_us:
            self._wake_us = self._wake_us or now_us + wait_us
            self.ctx.set_timer(self._wake_us)
        return not wait_us

    async def _call(self, row: AsyncRow, services: dict[str, Any]) -> Any:
        values = msgspec.structs.astuple(row.record)
        for attempt in range(self._options.retries):
            try:
                return await self._fn(*values, **services)
            except ServiceError:
                await Awaited[None](SLEEP, min(_BACKOFF_US << attempt, _BACKOFF_US_MAX))
                await self._permitted(row)
        return await self._fn(*values, **services)

    async def _permitted(self, row: AsyncRow) -> None:
        """Waits until the limit lets a call begin."""
        limit = self._limit
        while limit is not None and (wait_us := row.history.ask(lambda: limit.take(self.ctx.time.now()))):
            await Awaited[None](SLEEP, wait_us)

    def _read(self, row: AsyncRow, result: Any) -> pa.RecordBatch | None:
        try:
            return None if result is None else answers_of(encode([result], self._declared), self._answers)
        except FieldError as misfit:
            raise misfit_of(misfit, result, "map") from None

    def _finished(self, row: AsyncRow, found: pa.RecordBatch | None) -> None:
        question = row.note.number
        del self._rows[question], self._open[_key_of(row.record)]
        self._cache.add(row.batch.slice(row.position, 1), found, self.ctx.time.now())
        for waiting in self._asking.pop(question):
            waiting.settle(question, found)

    def _failed(self, row: AsyncRow, problem: BaseException) -> None:
        del self._open[_key_of(row.record)]
        self._drop(row.note.number, problem)

    # ---- state

    def tables(self, inputs: Sequence[pa.Schema]) -> Mapping[str, pa.Schema]:
        (rows,) = inputs
        numbers = [pa.field(name, pa.int64()) for name in (_NUMBER, *_ORIGIN)]
        kept = [rows.field(name) for name in self._kept]
        return {
            _CACHE: cache_schema(self._keys, self._answers, rows),
            _QUESTIONS: calls_schema(pa.schema([rows.field(key) for key in self._keys])),
            _WAITING: grouped_schema(pa.schema([*kept, *numbers, *self._answers, pa.field(_QUESTION, pa.int64())])),
        }

    def snapshot(self) -> OperatorState:
        cache = self._cache.snapshot()
        tables = {_QUESTIONS: self._stored_rows(self._groups), _WAITING: [self._stored(rows) for rows in self._held]}
        stored = {name: chunks for name, chunks in tables.items() if chunks}
        values: dict[str, Any] = {"next": self._next, "taken": self._taken, "marks": self._watermarks.stored}
        if self._limit is not None:
            values |= {"begun": self._limit.begun_us, "wake": self._wake_us}
        return OperatorState({**cache.tables, **stored}, {**cache.values, **values})

    def _groups(self, rows: pa.RecordBatch) -> npt.NDArray[np.int32]:
        return key_groups(rows, self._keys, self.ctx.key_groups)

    def _stored(self, waiting: WaitingRows) -> Chunk:
        left, questions = waiting.left()
        answers, places = waiting.answers(left)
        if answers is None:
            answers = nulls(self._answers, 1)
        rows, own = waiting.rows.take(left), pa.array(places, pa.int64(), mask=places == NO_ROW)
        of_answers = [column.take(own) for column in answers.columns]
        columns = [*rows.columns, *of_answers, pa.array(questions)]
        schema = pa.schema([*rows.schema, *answers.schema, pa.field(_QUESTION, pa.int64())])
        stored = pa.RecordBatch.from_arrays(columns, schema=schema)
        return Chunk(with_groups(stored, self._keys, self.ctx.key_groups))

    def restore(self, parts: Sequence[OperatorState]) -> None:
        self._clear()
        self._cache.restore(parts, self.ctx.groups)
        known = [part.values["marks"] for part in parts] if self.ctx.watermark != MIN_TIME else []
        self._watermarks = HeldWatermarks((number, at) for marks in known for number, at in marks)
        self._taken = max((int(part.values["taken"]) for part in parts), default=0)
        if self._options.rate is not None:
            self._limit = RateLimit(
                self._options.rate, sorted(at for part in parts for at in part.values.get("begun", ()))
            )
        questions = self._take_over(parts, _QUESTIONS)
        self._open = {_key_of(row.record): number for number, row in self._rows.items()}
        for part, numbers in zip(parts, questions, strict=True):
            for chunk in owned(part.tables.get(_WAITING, ()), self.ctx.groups):
                self._restore_waiting(chunk.rows, numbers, renumber=len(parts) > 1)
        self._restore_timer(parts)
        self._hold()

    def _restore_waiting(self, rows: pa.RecordBatch, numbers: Mapping[int, int], renumber: bool) -> None:
        """Adds rows that wait. ``numbers``: of their questions now, by the former ones."""
        asked = [numbers.get(question, DUE) for question in fixed(rows.column(_QUESTION)).tolist()]
        kept = rows.select([*self._kept, _NUMBER, *_ORIGIN])
        if renumber:
            number = pa.array(np.arange(self._taken, self._taken + rows.num_rows))
            kept = kept.set_column(kept.schema.get_field_index(_NUMBER), _NUMBER, number)
            self._taken += rows.num_rows
        waiting = WaitingRows(kept, of_schema(rows, self._answers), places_of(rows), np.array(asked, np.int64))
        self._hold_rows(waiting, sorted({question for question in asked if question != DUE}), {})

    def _restore_timer(self, parts: Sequence[OperatorState]) -> None:
        """Sets the timer for calls that wait for the limit. At a new parallelism, what rows and calls waited for may be
        in another instance: then no answer comes after which they go on, but a timer."""
        if len(parts) == 1:
            self._wake_us = parts[0].values.get("wake")
        if self._wake_us is not None:
            self.ctx.set_timer(self._wake_us)
        elif self._queue and self._has_room:
            self.ctx.set_timer(0)
        if self._held and len(self._held[0].due(self._options.waiting.ordered)):
            self.ctx.set_timer(0)


def _number(rows: pa.RecordBatch, column: str, row: int) -> int:
    return int(fixed(rows.column(column))[row])


def _key_of(record: Record) -> tuple[Any, ...]:
    """The values of a key, equal for equal keys. No value is null, so None stands for NaN, which is not equal to
    itself."""
    return tuple(value if value == value else None for value in msgspec.structs.astuple(record))
