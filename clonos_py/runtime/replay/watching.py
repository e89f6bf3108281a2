"""Operators under observation: what they ask in a replay is noted, or is answered from what was noted (F3).

An operator is what its factory makes. Only the context that it is opened with is another one, which passes on what is
no question.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from clonos_py.columns.digest import row_digests
from clonos_py.columns.views import Words
from clonos_py.model.errors import ServiceError, type_and_text
from clonos_py.model.hidden import is_hidden
from clonos_py.model.ids import TaskId
from clonos_py.model.operators import Operator
from clonos_py.model.plan import OperatorPlan, PhysicalPlan
from clonos_py.operators.async_calls import AsyncCalls
from clonos_py.runtime.replay.answers import QuestionMoment, RecordedAnswers, ServiceAnswer, Unasked
from clonos_py.services.context import Context
from clonos_py.services.http import HTTP, IDEMPOTENCY_KEY, Request

_SHOWN = 200
_BATCHES_MAX = 64
_NO_ROW = "event"
_NOT_ASKED: Hashable = "nothing"


# ---- which row is processed


class OperatorPlace:
    """The row that an operator processes."""

    def __init__(self, operator: Operator) -> None:
        self._operator = operator
        self._context: Context | None = None
        self._rows: pa.RecordBatch | None = None
        self._digests: Words | None = None
        self._called: dict[int, tuple[pa.RecordBatch, Words]] = {}
        """By id: batches with rows of asynchronous functions, and the digests of their rows."""

    def opened(self) -> None:
        """The operator was opened, so its context for user code exists."""
        for found in vars(self._operator).values():
            for value in found.values() if isinstance(found, dict) else (found,):
                if isinstance(value, Context):
                    self._context = value

    def begin(self, rows: pa.RecordBatch | None) -> None:
        self._rows, self._digests = rows, None

    @property
    def row(self) -> Hashable:
        """What identifies the row: its content, else its key and time."""
        if self._context is None:
            return _NO_ROW
        number, key, event_time = self._context.place
        if self._rows is not None and 0 <= number < self._rows.num_rows:
            if self._digests is None:
                self._digests = row_digests(self._rows.select(_shown(self._rows)))
            return int(self._digests[number])
        return _NO_ROW if key is None and event_time is None else (repr(key), event_time)

    def row_of_call(self, number: int) -> Hashable:
        """What identifies the row of an asynchronous call."""
        if not isinstance(self._operator, AsyncCalls):
            return _NO_ROW
        rows, position = self._operator.row_of(number)
        if id(rows) not in self._called:
            if len(self._called) >= _BATCHES_MAX:
                self._called.clear()
            self._called[id(rows)] = rows, row_digests(rows.select(_shown(rows)))
        return int(self._called[id(rows)][1][position])

    def holds(self, row: Hashable) -> bool:
        """Whether an asynchronous function may still ask something for this row."""
        operator = self._operator
        return isinstance(operator, AsyncCalls) and any(self.row_of_call(n) == row for n in operator.unfinished)

    def text_of_call(self, number: int) -> str:
        """The row of an asynchronous call as text."""
        if not isinstance(self._operator, AsyncCalls):
            return self.text
        return _row_text(*self._operator.row_of(number))

    @property
    def text(self) -> str:
        """The row as text."""
        if self._context is None:
            return "its current rows" if self._rows is None else f"one of {self._rows.num_rows} rows"
        number, key, event_time = self._context.place
        if self._rows is not None and 0 <= number < self._rows.num_rows:
            return _row_text(self._rows, number)
        return f"key {_shortened(repr(key))}" + (f", time {event_time}" if event_time is not None else "")


def _row_text(rows: pa.RecordBatch, number: int) -> str:
    row = rows.slice(number, 1).select(_shown(rows)).to_pylist()[0]
    return f"row {_shortened(repr(row))}"


def _shown(rows: pa.RecordBatch) -> list[str]:
    return [name for name in rows.schema.names if not is_hidden(name)]


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


# ---- questions to services


def question_of(service: str, question: Any) -> Hashable:
    """What is equal for equal questions. The idempotency key that a request was given is no part of it."""
    if isinstance(question, Request):
        headers = dict(question.headers)
        key = headers.pop(IDEMPOTENCY_KEY, None)
        if key is not None and not key.endswith(f"/{replace(question, headers=headers).digest()}"):
            headers[IDEMPOTENCY_KEY] = key
        return service, question.method, question.url, tuple(sorted(headers.items())), question.content
    try:
        return service, msgspec.msgpack.encode(question)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return service, repr(question)


def question_text(service: str, question: Any) -> str:
    """A question as text."""
    if isinstance(question, Request):
        return f"{question.method} {question.url}"
    args, kwargs = question
    given = ", ".join([*map(repr, args), *(f"{name}={value!r}" for name, value in kwargs.items())])
    return f"{service}({_shortened(given)})"


class _Client:
    """Stands for the client of a service, of either kind."""

    def __init__(self, ask: Callable[[Any], Any]) -> None:
        self._ask = ask

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._ask((args, kwargs))

    def send(self, request: Request) -> Any:
        return self._ask(request)


class _Noted(ServiceError):
    """Ends a call of which only the question is wanted."""


# ---- the recorded code


class Asked(NamedTuple):
    """An asynchronous call of the recorded code. ``row``: what identifies the row for which it was made."""

    question: Hashable
    row: Hashable


@dataclass(frozen=True)
class Listening:
    """What observers of the recorded code share."""

    record: RecordedAnswers
    moment: Callable[[TaskId], QuestionMoment]
    """The event that a task performs now."""
    clock: Callable[[TaskId, int], None]
    """Takes each time of day that a task was answered."""
    calls: dict[tuple[str, int], dict[int, Asked]]
    """By operator and index of the task: the asynchronous calls that wait, by number."""
    answered: dict[tuple[str, int], Asked]
    """By operator and index of the task: the asynchronous call that was answered last."""
    places: dict[tuple[str, int], OperatorPlace]
    """By operator and index of the task."""

    def will_ask(self, operator: str, index: int, asked: Asked) -> bool:
        """Whether the recorded code waits for the answer to this call, or may still make it."""
        if asked in self.calls.get((operator, index), {}).values():
            return True
        place = self.places.get((operator, index))
        return place is not None and place.holds(asked.row)


class _RecordedRandom(random.Random):
    """Passes on the numbers of another generator, and notes them."""

    def __init__(self, inner: random.Random, note: Callable[[str, float], None]) -> None:
        self._inner, self._note = inner, note

    def random(self) -> float:
        drawn = self._inner.random()
        self._note("random", drawn)
        return drawn

    def getrandbits(self, k: int, /) -> int:
        drawn = self._inner.getrandbits(k)
        self._note(f"bits {k}", drawn)
        return drawn

    def gauss(self, mu: float = 0.0, sigma: float = 1.0) -> float:
        drawn = self._inner.gauss(0.0, 1.0)
        self._note("gauss", drawn)
        return mu + drawn * sigma

    def seed(self, *args: Any, **kwargs: Any) -> None:
        self._inner.seed(*args, **kwargs)

    def getstate(self) -> tuple[Any, ...]:
        return self._inner.getstate()

    def setstate(self, state: tuple[Any, ...]) -> None:
        self._inner.setstate(state)


class _RecordedContext:
    """The context of an operator that replays. Notes what it asks."""

    def __init__(self, inner: Any, place: OperatorPlace, listening: Listening) -> None:
        self._inner, self._place, self._listening = inner, place, listening
        self._answers = listening.record.of(inner.operator)
        listening.places[inner.operator, inner.task.index] = place
        self._waiting = listening.calls.setdefault((inner.operator, inner.task.index), {})
        self._random: _RecordedRandom | None = None
        self._drawn_from: random.Random | None = None
        self._noting, self._noted = False, _NOT_ASKED
        self.time = self.gate = self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def _moment(self) -> QuestionMoment:
        return self._listening.moment(self._inner.task)._replace(row=self._place.row)

    def now(self) -> int:
        now_us: int = self._inner.time.now()
        moment = self._moment()
        self._answers.times.add(moment.row, moment, now_us)
        self._listening.clock(self._inner.task, now_us)
        return now_us

    @property
    def random(self) -> random.Random:
        inner = self._inner.random
        if self._random is None or self._drawn_from is not inner:
            self._random, self._drawn_from = _RecordedRandom(inner, self._drew), inner
        return self._random

    def _drew(self, kind: str, drawn: float) -> None:
        moment = self._moment()
        self._answers.draws.add((moment.row, kind), moment, drawn)

    def ask(self, kind: str, live: Callable[[], Any]) -> Any:
        try:
            value = self._inner.gate.ask(kind, live)
        except ServiceError as error:
            self._answers.services.add(self._question(live), self._moment(), ServiceAnswer(None, str(error)))
            raise
        self._answers.services.add(self._question(live), self._moment(), ServiceAnswer(value))
        return value

    def _question(self, live: Callable[[], Any]) -> Hashable:
        """Calls what would have called the service, with a client that notes the question."""
        self._noting, self._noted = True, _NOT_ASKED
        try:
            live()
        except _Noted:
            pass
        finally:
            self._noting = False
        return self._noted

    def service(self, name: str) -> Any:
        return _Client(partial(self._called, name))

    def _called(self, name: str, question: Any) -> Any:
        if not self._noting:
            return self._inner.service(name)(question)  # the log is used up: the replay refuses this
        self._noted = question_of(self._listening.record.service_name(name), question)
        raise _Noted

    def start_call(self, number: int, service: str, question: Any) -> None:
        asked = question_of(self._listening.record.service_name(service), question)
        self._waiting[number] = Asked(asked, self._place.row_of_call(number))
        self._inner.start_call(number, service, question)

    def cancel_call(self, number: int) -> None:
        self._waiting.pop(number, None)
        self._inner.cancel_call(number)

    def answered(self, number: int, value: Any, error: str | None) -> None:
        """An asynchronous call is answered."""
        asked = self._waiting.pop(number)
        self._listening.answered[self._inner.operator, self._inner.task.index] = asked
        moment = self._moment()._replace(row=asked.row)
        self._answers.services.add(asked.question, moment, ServiceAnswer(value, error))


# ---- the changed code


@dataclass(frozen=True)
class WaitingCall:
    """An asynchronous call of the changed code. ``text``: its row."""

    asked: Asked
    service: str
    question: Any
    text: str


@dataclass(frozen=True)
class Answering:
    """What the contexts of the changed code share."""

    record: RecordedAnswers
    moment: Callable[[TaskId, str], QuestionMoment]
    """The recorded event whose counterpart an operator of a task performs now."""
    clock: Callable[[TaskId], int]
    """The recorded time of day."""
    client: Callable[[str], Any]
    """The real client of a service, for ``Unasked.LIVE``."""
    calls: dict[tuple[str, int], dict[int, WaitingCall]]
    """By operator and index of the task: the asynchronous calls that wait, by number."""

    def answer(
        self, operator: str, moment: QuestionMoment, service: str, question: Any, row: Callable[[], str]
    ) -> ServiceAnswer:
        """What a service answers. Raises LeftRecord if that ends the comparison."""
        asked = question_of(self.record.service_name(service), question)
        found = self.record.service(operator, asked, moment)
        if found is not None:
            return found
        self.record.leave(question_text(service, question), operator, row)
        if self.record.unasked is Unasked.DEFAULT:
            return ServiceAnswer(None, f"the record has no answer to {question_text(service, question)}")
        try:
            client = self.client(service)
            return ServiceAnswer(client.send(question) if service == HTTP else client(*question[0], **question[1]))
        except Exception as error:  # noqa: BLE001 - any error of a service is its answer
            return ServiceAnswer(None, str(error) if isinstance(error, ServiceError) else type_and_text(error))


class _AnsweredRandom(random.Random):
    """Gives the recorded numbers, and others where there are none."""

    def __init__(self, draw: Callable[[str], float | None], seed: str) -> None:
        self._draw, self._beyond = draw, random.Random(seed)

    def random(self) -> float:
        drawn = self._draw("random")
        return self._beyond.random() if drawn is None else drawn

    def getrandbits(self, k: int, /) -> int:
        drawn = self._draw(f"bits {k}")
        return self._beyond.getrandbits(k) if drawn is None else int(drawn)

    def gauss(self, mu: float = 0.0, sigma: float = 1.0) -> float:
        drawn = self._draw("gauss")
        return mu + (self._beyond.gauss() if drawn is None else drawn) * sigma

    def seed(self, *args: Any, **kwargs: Any) -> None:
        """The numbers are those of the record."""


class _AnsweredContext:
    """The context of an operator of the changed code. Answers from the record."""

    def __init__(self, inner: Any, place: OperatorPlace, answering: Answering) -> None:
        self._inner, self._place, self._answering = inner, place, answering
        self._record = answering.record
        self._waiting = answering.calls.setdefault((inner.operator, inner.task.index), {})
        self.random = _AnsweredRandom(self._draw, f"{inner.operator} {inner.task.index}")
        self.time = self.gate = self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def _moment(self) -> QuestionMoment:
        return self._answering.moment(self._inner.task, self._inner.operator)._replace(row=self._place.row)

    def now(self) -> int:
        moment, answers = self._moment(), self._record.operators.get(self._inner.operator)
        found = answers.times.take(moment.row, moment) if answers is not None else None
        return self._answering.clock(self._inner.task) if found is None else found

    def _draw(self, kind: str) -> float | None:
        found = self._record.draw(self._inner.operator, kind, self._moment())
        if found is None:
            self._record.leave("a random number", self._inner.operator, lambda: self._place.text)
        return found

    def ask(self, kind: str, live: Callable[[], Any]) -> Any:
        return live()

    def service(self, name: str) -> Any:
        return _Client(partial(self._answer, name))

    def _answer(self, name: str, question: Any) -> Any:
        found = self._answering.answer(self._inner.operator, self._moment(), name, question, lambda: self._place.text)
        if found.error is not None:
            raise ServiceError(found.error)
        return found.value

    def start_call(self, number: int, service: str, question: Any) -> None:
        asked = question_of(self._record.service_name(service), question)
        call = Asked(asked, self._place.row_of_call(number))
        self._waiting[number] = WaitingCall(call, service, question, self._place.text_of_call(number))
        self._inner.start_call(number, service, question)

    def cancel_call(self, number: int) -> None:
        self._waiting.pop(number, None)
        self._inner.cancel_call(number)

    def answered(self, number: int, value: Any, error: str | None) -> None:
        """An asynchronous call is answered."""
        self._waiting.pop(number, None)


# ---- operators with these contexts


def watched(plan: PhysicalPlan, listening: Listening) -> PhysicalPlan:
    """The plan of the recorded code, whose operators note what they ask."""
    return _with_contexts(plan, lambda inner, place: _RecordedContext(inner, place, listening))


def answered(plan: PhysicalPlan, answering: Answering) -> PhysicalPlan:
    """The plan of the changed code, whose operators are answered from the record."""
    return _with_contexts(plan, lambda inner, place: _AnsweredContext(inner, place, answering))


_MakeContext = Callable[[Any, OperatorPlace], "_RecordedContext | _AnsweredContext"]


def _with_contexts(plan: PhysicalPlan, make: _MakeContext) -> PhysicalPlan:
    return plan.with_operators(lambda operator: _with_context(operator, make))


def _with_context(operator: OperatorPlan, make: _MakeContext) -> OperatorPlan:
    return operator if operator.sink else replace(operator, factory=partial(_made, operator.factory, make))


def _made(factory: Callable[[], Operator], make: _MakeContext) -> Operator:
    operator = factory()
    place = OperatorPlace(operator)
    opens, takes, is_answered = operator.open, operator.on_rows, operator.on_answer
    contexts: list[Any] = []

    def open_(ctx: Any, out: Any) -> None:
        contexts.append(make(ctx, place))
        opens(contexts[-1], out)
        place.opened()

    def on_rows(rows: pa.RecordBatch, side: int) -> None:
        place.begin(rows)
        try:
            takes(rows, side)
        finally:
            place.begin(None)

    def on_answer(number: int, value: Any, error: str | None) -> None:
        contexts[-1].answered(number, value, error)
        is_answered(number, value, error)

    for name, method in (("open", open_), ("on_rows", on_rows), ("on_answer", on_answer)):
        setattr(operator, name, method)
    return operator
