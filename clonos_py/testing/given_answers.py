"""Answers that a test gives to the functions of operators, in place of the clock, random numbers and services.

The answers of an operator are given in the order in which its functions ask. They enter at the task's gate, as live
answers do. ``draws`` are the results of ``random()`` and of ``gauss(0, 1)`` (floats) and of ``getrandbits()`` (ints)
of ``ctx.random``; all of its other methods compute theirs from these.

``timers`` say when the clock reaches processing-time timers. The operator sets none in its task: they fire between two
of its batches.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa

from clonos_py.model.asked import ANSWERS, DRAWS, KINDS, TIMERS, TIMES
from clonos_py.model.errors import GraphError, ServiceError, UserCodeError
from clonos_py.model.operators import Operator, OperatorContext, Output
from clonos_py.model.plan import OperatorPlan, PhysicalPlan
from clonos_py.model.times import MAX_TIME
from clonos_py.operators.process import ProcessOperator
from clonos_py.operators.subclassing import subclassed
from clonos_py.services.definition import ServiceDefinition
from clonos_py.services.plain import plain

ByOperator = Mapping[str, Sequence[Any]]
"""Answers of one kind by the name of the operator that asks."""


def http_answer(
    text: str = "",
    status: int = 200,
    *,
    json: Any = None,
    content: bytes | None = None,
    headers: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """An answer to a request of ``ctx.http``, for ``answers=`` of ``run``. Its content is ``text``, or ``json``
    encoded, or ``content``. Names of ``headers`` are lower-case."""
    body = content if content is not None else text.encode() if json is None else msgspec.json.encode(json)
    return {"status": status, "headers": dict(headers or {}), "content": body}


class AnswersOfOperator:
    """The answers for one operator. A kind that is not in ``given`` is asked live."""

    def __init__(self, operator: str, given: Mapping[str, Sequence[Any]]) -> None:
        self._operator, self.given = operator, given
        self.used: dict[str, int] = dict.fromkeys(KINDS, 0)
        """By kind: how many were given."""
        self.ran_out = False
        """Whether there were too few of a kind."""

    def next(self, kind: str) -> Any:
        """The next answer. Raises UserCodeError if all were given."""
        number, given = self.used[kind], self.given[kind]
        if number == len(given):
            self.ran_out = True
            raise UserCodeError(
                f"operator {self._operator!r} asks once more than {kind}= of the test has answers, which is {number}"
            )
        self.used[kind] += 1
        return given[number]

    def draw(self, kind: type[Any], method: str) -> Any:
        """The next random number. Raises UserCodeError if it is of another kind."""
        found = self.next(DRAWS)
        if type(found) is not kind:
            raise UserCodeError(
                f"operator {self._operator!r} calls {method}() of random numbers, for which draws= of the test has "
                f"{found!r}, which is no {kind.__name__}"
            )
        return found

    def fired(self, taken: int) -> Iterator[int]:
        """The times that the clock reaches before the operator takes another row. ``taken``: the rows that it has
        taken."""
        given = self.given[TIMERS]
        while (number := self.used[TIMERS]) < len(given) and given[number][0] <= taken:
            self.used[TIMERS] += 1
            yield given[number][1]

    def answer(self) -> Any:
        """The next answer of a service. Raises the ServiceError that is in its place."""
        found = self.next(ANSWERS)
        if isinstance(found, ServiceError):
            raise ServiceError(str(found))
        return plain(found, "an answer of the test")


class GivenAnswers:
    """The answers for all operators of a job."""

    def __init__(self, times: ByOperator, draws: ByOperator, answers: ByOperator, timers: ByOperator) -> None:
        by_kind = dict(zip(KINDS, (times, draws, answers, timers), strict=True))
        names = dict.fromkeys(name for given in by_kind.values() for name in given)
        self.operators = {
            name: AnswersOfOperator(name, {kind: given[name] for kind, given in by_kind.items() if name in given})
            for name in names
        }

    def answering(self, plan: PhysicalPlan) -> PhysicalPlan:
        """The plan with operators that get these answers. Raises GraphError if one of them is not in it, or has no
        processing-time timers to fire."""
        known = [operator.name for vertex in plan.vertices for operator in vertex.operators if not operator.sink]
        for name in self.operators:
            if name not in known:
                raise GraphError(f"the test has answers for {name!r}: the job has {', '.join(known)}")
        return plan.with_operators(self._operator)

    def _operator(self, operator: OperatorPlan) -> OperatorPlan:
        given = self.operators.get(operator.name)
        if given is None:
            return operator
        if TIMERS in given.given:
            _check_timers(operator, given.given[TIMERS])
        return replace(operator, factory=partial(_answered, operator.factory, given))


def _check_timers(operator: OperatorPlan, timers: Sequence[Any]) -> None:
    made = operator.factory()
    if not (isinstance(made, ProcessOperator) and made.has_processing_timers):
        raise GraphError(f"the test has timers for {operator.name!r}, which has no processing-time timers")
    for given in timers:
        if not (isinstance(given, tuple) and len(given) == 2 and all(type(value) is int for value in given)):
            raise GraphError(
                f"timers= of the test has {given!r} for {operator.name!r}: give pairs of the number of rows that it "
                "has taken and the time that the clock reaches then, in microseconds UTC"
            )
    if [rows for rows, _ in timers] != sorted(rows for rows, _ in timers):
        raise GraphError(f"timers= of the test for {operator.name!r} are not in the order of the rows taken")


def _answered(factory: Callable[[], Operator], given: AnswersOfOperator) -> Operator:
    return subclassed(factory, {}, _Answered, given=given)


class _Answered(Operator):
    given: AnswersOfOperator
    _rows_taken = 0

    def open(self, ctx: OperatorContext, out: Output) -> None:
        given: Any = _GivenContext(ctx, self.given)
        super().open(given, out)

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        self._fire_given()
        self._rows_taken += rows.num_rows
        super().on_rows(rows, side)

    def on_watermark(self, watermark: int) -> int:
        if watermark == MAX_TIME:
            self._fire_given()
        return super().on_watermark(watermark)

    def _fire_given(self) -> None:
        if TIMERS in self.given.given:
            for at in self.given.fired(self._rows_taken):
                self.on_timer(at)


class _GivenContext:
    """The context of an operator, but for what the test answers."""

    def __init__(self, ctx: Any, given: AnswersOfOperator) -> None:
        self._ctx, self._given = ctx, given
        self.time = _GivenClock(ctx.gate, given) if TIMES in given.given else ctx.time
        self.gate = _GivenGate(ctx.gate, given) if ANSWERS in given.given else ctx.gate
        self._draws = _GivenRandom(given)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ctx, name)

    @property
    def random(self) -> random.Random:
        if DRAWS in self._given.given:
            return self._draws
        found: random.Random = self._ctx.random
        return found

    def set_timer(self, at: int) -> None:
        if TIMERS not in self._given.given:
            self._ctx.set_timer(at)

    def clear_timer(self, at: int) -> None:
        if TIMERS not in self._given.given:
            self._ctx.clear_timer(at)

    def start_call(self, number: int, service: str, question: Any) -> None:
        if ANSWERS not in self._given.given:
            self._ctx.start_call(number, service, question)
            return
        try:
            args: tuple[Any, ...] = (self._given.answer(),)
        except ServiceError as problem:
            args = (None, str(problem))
        self._ctx.start_call(number, GIVEN.name, (args, {}))


class _GivenClock:
    """Each query is one of the gate: none is answered with the time before it."""

    def __init__(self, gate: Any, given: AnswersOfOperator) -> None:
        self._gate, self._given = gate, given

    def now(self) -> int:
        self._gate.reset_time()
        now_us: int = self._gate.now(lambda: self._given.next(TIMES))
        return now_us


class _GivenGate:
    def __init__(self, gate: Any, given: AnswersOfOperator) -> None:
        self._gate, self._given = gate, given

    def __getattr__(self, name: str) -> Any:
        return getattr(self._gate, name)

    def ask(self, kind: str, live: Callable[[], Any]) -> Any:
        return self._gate.ask(kind, self._given.answer)


class _GivenRandom(random.Random):
    """Its other methods call these."""

    _given: AnswersOfOperator | None = None

    def __new__(cls, given: AnswersOfOperator) -> _GivenRandom:
        return super().__new__(cls)

    def __init__(self, given: AnswersOfOperator) -> None:
        super().__init__(0)
        self._given = given

    def random(self) -> float:
        assert self._given is not None
        found: float = self._given.draw(float, "random")
        return found

    def getrandbits(self, k: int, /) -> int:
        assert self._given is not None
        found: int = self._given.draw(int, "getrandbits")
        return found

    def gauss(self, mu: float = 0.0, sigma: float = 1.0) -> float:
        assert self._given is not None
        found: float = self._given.draw(float, "gauss")
        return mu + found * sigma


def _as_given() -> Iterator[Callable[..., Any]]:
    def answer(value: Any, error: str | None = None) -> Any:
        if error is not None:
            raise ServiceError(error)
        return value

    yield answer


GIVEN: ServiceDefinition[..., Any] = ServiceDefinition(f"{__name__}.given", _as_given)
"""Answers the calls of asynchronous functions."""
