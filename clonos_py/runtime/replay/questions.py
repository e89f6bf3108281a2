"""Finds what a row of a sink needed: rows of the sources, and what functions on its way got from outside.

As in a trace, the way leads back from the row. Besides, operators note for which row or key their function asked for
the time, for random numbers and for answers of services, and what it got, and behind which row a timer fired.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import accumulate, groupby
from typing import Any, NamedTuple

import pyarrow as pa

from clonos_py.dsl.job import Job
from clonos_py.model.asked import ANSWERS, DRAWS, TIMERS, TIMES
from clonos_py.model.errors import ServiceError
from clonos_py.model.hidden import is_hidden
from clonos_py.model.ids import TaskId
from clonos_py.model.operators import Operator, OperatorContext, Output
from clonos_py.model.plan import OperatorPlan, Vertex
from clonos_py.model.record import Record
from clonos_py.model.record_codec import decode
from clonos_py.operators.async_rows import MapAsyncRows
from clonos_py.operators.process import ProcessOperator
from clonos_py.operators.rows import MapRows
from clonos_py.operators.subclassing import subclassed
from clonos_py.runtime.replay.histories import Positions, joined
from clonos_py.runtime.replay.operator_inputs import ADDED
from clonos_py.runtime.replay.predicates import RowPredicate
from clonos_py.runtime.replay.provenance import SOURCE, OperatorPlace, Tracer, TraceStep, WantedRows
from clonos_py.runtime.replay.row_rules import TracedRows, inputs_of

_Ranks = dict[int, tuple[int, ...]]
"""By row of a batch: its place in an order."""


class NotedAnswer(NamedTuple):
    """An answer of kind ``kind``. ``key``: of the process function that got it; else None, and it was for ``row`` of
    batch ``batch``, or for the whole batch if ``row`` is -1. Of a timer: it has fired behind this batch."""

    kind: str
    value: Any
    key: tuple[Any, ...] | None
    batch: int
    row: int


class NeededAnswers(NamedTuple):
    """What the functions of an operator got, in the order in which they asked. ``timers``: how many of the rows that
    are needed it had taken when processing-time timers fired, and the time that they were due."""

    times: list[int]
    draws: list[float | int]
    answers: list[Any]
    timers: list[tuple[int, int]]


class NeededRows(NamedTuple):
    """``inputs``: by source, pieces of what it read, in order, with the columns that the job reads. ``answers``: by
    operator. ``whole``: whether no row from before the interval may count."""

    row: Record
    inputs: dict[str, list[pa.RecordBatch]]
    answers: dict[str, NeededAnswers]
    whole: bool


class NeedsTracer(Tracer):
    """Watches the operators of a replay for the first row of a sink that meets a condition, and notes what they get."""

    def __init__(self, job: Job, row: RowPredicate, sink: str | None) -> None:
        super().__init__(job, row, sink, rows_max=0)
        self._notes: dict[tuple[TaskId, int], list[NotedAnswer]] = {}
        self._draws: dict[TaskId, _NotedRandom] = {}
        self._taken: dict[OperatorPlace, Mapping[TaskId, Positions]] = {}
        self._keys: dict[OperatorPlace, set[tuple[Any, ...]]] = {}
        self._ranks: dict[tuple[OperatorPlace, TaskId, int], _Ranks] = {}
        """By batch that an operator has emitted: when the next stateful operator took its rows."""
        self._orders: dict[tuple[TaskId, int], _Ranks] = {}
        """The same by batch that the operator at hand has taken."""
        self._order_of: dict[tuple[OperatorPlace, TaskId, int], _Ranks] = {}
        self._pieces: dict[str, list[pa.RecordBatch]] = {}

    # ---- what is noted

    def _operator(self, vertex: Vertex, number: int, operator: OperatorPlan) -> OperatorPlan:
        made = super()._operator(vertex, number, operator)
        return made if operator.sink else replace(made, factory=partial(_noted, made.factory, number, self))

    def note(self, task: TaskId, number: int, answer: NotedAnswer) -> None:
        self._notes.setdefault((task, number), []).append(answer)

    def random(self, task: TaskId, shared: random.Random, note: Callable[[float | int], None]) -> random.Random:
        """The random generator of a task, whose draws are noted. All operators share it."""
        found = self._draws.get(task)
        if found is None or found.shared is not shared:
            found = self._draws[task] = _NotedRandom(shared)
        found.note = note
        return found

    # ---- the way back

    @property
    def sink(self) -> str:
        """The name of the sink."""
        return self._end.plan.name

    def needs(self) -> NeededRows:
        """What the row needed that was found."""
        steps = self.steps()
        assert self._found is not None
        task, number, batch, row = self._found
        taken = self._tasks[task].operator(number).taken[batch].rows.slice(row, 1)
        found = next(record for records in decode(taken, self._record) for record in records)
        whole = not any(step.notes for step in steps)
        answers = {self._operator_at(place).plan.name: self._answers(place) for place in self._taken}
        return NeededRows(found, self._pieces, {name: given for name, given in answers.items() if any(given)}, whole)

    def _inputs(self, place: OperatorPlace, wanted: WantedRows) -> TraceStep:
        operator = self._operator_at(place)
        node = operator.node if operator.plan.verb not in ADDED else self._behind(operator).node
        self._orders = {}
        for task, parts in wanted.rows.items():
            history = self._tasks[task].operator(operator.number)
            emitted = joined(parts)
            first = min(min(self._ranks[place, task, number].values()) for number in emitted)
            for number, rows in emitted.items():
                if (keys := history.emitted[number].keys) is not None:
                    self._keys.setdefault(place, set()).update(tuple(keys[n].values()) for n in rows.tolist())
                found = inputs_of(TracedRows(history, history.emitted[number], rows, operator.plan.verb, node))
                ranks = self._ranks[place, task, number]
                taken = [(batch, row) for batch, at in found.rows.items() for row in at.tolist()]
                if found.state:
                    given = [((batch, row), (*first, batch, row)) for batch, row in taken]
                elif (origins := history.emitted[number].origins) is not None:
                    given = [(origins[row], ranks[row]) for row in rows.tolist()]
                elif len(taken) == len(rows):  # one for one, in the same order
                    given = list(zip(taken, (ranks[row] for row in rows.tolist()), strict=True))
                else:
                    given = [(at, min(ranks.values())) for at in taken]
                for (batch, row), rank in given:
                    _lower(self._orders.setdefault((task, batch), {}), row, rank)
        return super()._inputs(place, wanted)

    def _step(self, place: OperatorPlace, rows: Mapping[TaskId, Positions], *more: Any) -> TraceStep:
        self._taken[place] = rows
        step = super()._step(place, rows, *more)
        self._order_of |= {(place, *at): rank for at, rank in self._orders.items()}
        return step

    def _ask(self, place: OperatorPlace, task: TaskId, rows: Positions, shown: list[str]) -> None:
        asking, batch, places = self._asking
        known = self._orders.get((asking, batch), {})
        for number, at in rows.items():
            ranks = self._ranks.setdefault((place, task, number), {})
            for row, taken in zip(at.tolist(), places.tolist(), strict=True):
                _lower(ranks, row, known.get(taken, (0, batch, taken)))
        super()._ask(place, task, rows, shown)

    def _source(self, place: OperatorPlace, wanted: WantedRows) -> TraceStep:
        step = super()._source(place, wanted)
        rows = sorted(
            (self._ranks[place, task, number][row], number, row)
            for task, parts in wanted.rows.items()
            for number, at in joined(parts).items()
            for row in at.tolist()
        )
        for number, found in groupby(rows, key=lambda one: one[1]):
            read = self._reads[number]
            visible = [name for name in read.schema.names if not is_hidden(name)]
            piece = read.select(visible).take(pa.array([row for *_, row in found], pa.int64()))
            self._pieces.setdefault(step.operator, []).append(piece)
        return step

    def _answers(self, place: OperatorPlace) -> NeededAnswers:
        found = list(self._noted_at(place))
        times, draws, answers = ([a.value for a in found if a.kind == kind] for kind in (TIMES, DRAWS, ANSWERS))
        return NeededAnswers(times, draws, answers, sorted(set(self._timers(place))))

    def _timers(self, place: OperatorPlace) -> Iterator[tuple[int, int]]:
        if place[1] == SOURCE:
            return
        keys = self._keys.get(place, ())
        taken = {task: sorted(self._ranked(place, task)) for task in self._taken[place]}
        order = sorted(rank for ranked in taken.values() for _, rank in ranked)
        for task, ranked in taken.items():
            batches, last = [batch for batch, _ in ranked], list(accumulate((rank for _, rank in ranked), max))
            for note in self._notes.get((task, place[1]), ()):
                if note.kind == TIMERS and note.key in keys:
                    before = bisect_right(batches, note.batch)
                    yield bisect_right(order, last[before - 1]) if before else 0, note.value

    def _ranked(self, place: OperatorPlace, task: TaskId) -> Iterator[tuple[int, tuple[int, ...]]]:
        """The batch and the place in the order of each row that is needed and that an operator of a task has taken."""
        for batch, rows in self._taken[place][task].items():
            ranks = self._order_of.get((place, task, batch), {})
            yield from ((batch, ranks.get(row, (0, batch, row))) for row in rows.tolist())

    def _noted_at(self, place: OperatorPlace) -> Iterator[NotedAnswer]:
        if place[1] == SOURCE:
            return
        chosen: list[tuple[tuple[int, ...], str, int, NotedAnswer]] = []
        for task, positions in self._taken[place].items():
            rows = {batch: set(at.tolist()) for batch, at in positions.items()}
            for n, note in enumerate(self._notes.get((task, place[1]), ())):
                if note.kind == TIMERS:
                    continue
                if note.key is not None and note.key in self._keys.get(place, ()):
                    chosen.append(((), str(task), n, note))
                elif note.key is None and note.batch in rows and (note.row < 0 or note.row in rows[note.batch]):
                    ranks = self._order_of.get((place, task, note.batch), {})
                    rank = ranks[note.row] if note.row in ranks else min(ranks.values(), default=())
                    chosen.append((rank, str(task), n, note))
        yield from (note for *_, note in sorted(chosen, key=lambda one: one[:3]))


def _lower(ranks: _Ranks, row: int, rank: tuple[int, ...]) -> None:
    ranks[row] = min(rank, ranks.get(row, rank))


# ---- operators that note what they get


class _Noting(Operator):
    """What the subclasses share. ``about``: the row of the last batch for which the function is called, or -1."""

    place_number: int
    notes_of: NeedsTracer
    about: tuple[int, int] | None = None

    def open(self, ctx: OperatorContext, out: Output) -> None:
        super().open(_NotingContext(ctx, self), out)

    def note(self, kind: str, value: Any) -> None:
        batch, row = self.about if self.about is not None else (self.batch, -1)  # type: ignore[attr-defined]
        self.notes_of.note(self.ctx.task, self.place_number, NotedAnswer(kind, value, self.noted_key(), batch, row))

    def noted_key(self) -> tuple[Any, ...] | None:
        return None


class _NotingRows(_Noting):
    def _with_context(self, record: Any, row: int, context: Any) -> Any:
        self.about = self.batch, row  # type: ignore[attr-defined]
        return super()._with_context(record, row, context)  # type: ignore[misc]


class _NotingAsyncRows(_Noting):
    def _begin(self, row: Any) -> None:
        self.about = self._numbers.get(id(row.batch), -1), row.position  # type: ignore[attr-defined]
        super()._begin(row)  # type: ignore[misc]

    def _resume(self, row: Any, *given: Any) -> None:
        self.about = self._numbers.get(id(row.batch), -1), row.position  # type: ignore[attr-defined]
        super()._resume(row, *given)  # type: ignore[misc]

    def on_answer(self, number: int, value: Any, error: str | None) -> None:
        row = self._rows[number]  # type: ignore[attr-defined]
        self.about = self._numbers.get(id(row.batch), -1), row.position  # type: ignore[attr-defined]
        self.note(ANSWERS, value if error is None else ServiceError(error))
        super().on_answer(number, value, error)


class _NotingProcess(_Noting, ProcessOperator):
    _fires_at: int | None = None
    """The time that processing-time timers were due that fire."""

    def noted_key(self) -> tuple[Any, ...] | None:
        return tuple(self._keys.by_name(self.cell.key).values())

    def on_timer(self, at: int) -> None:
        self._fires_at = at
        super().on_timer(at)
        self._fires_at = None

    def _failure(self, call: Callable[..., Any], *given: Any) -> BaseException | None:
        if self._fires_at is not None:
            self.note(TIMERS, self._fires_at)
        return super()._failure(call, *given)


_KINDS: dict[type[Operator], type[_Noting]] = {
    MapRows: _NotingRows,
    MapAsyncRows: _NotingAsyncRows,
    ProcessOperator: _NotingProcess,
}


def _noted(factory: Callable[[], Operator], number: int, notes: NeedsTracer) -> Operator:
    return subclassed(factory, _KINDS, _Noting, place_number=number, notes_of=notes)


class _NotingContext:
    """The context of an operator, which notes what the operator gets from it."""

    def __init__(self, ctx: Any, operator: _Noting) -> None:
        self._ctx, self._operator = ctx, operator
        self.time, self.gate = _NotingClock(ctx.time, operator), _NotingGate(ctx.gate, operator)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ctx, name)

    @property
    def random(self) -> random.Random:
        operator = self._operator
        return operator.notes_of.random(self._ctx.task, self._ctx.random, partial(operator.note, DRAWS))


class _NotingClock:
    def __init__(self, clock: Any, operator: _Noting) -> None:
        self._clock, self._operator = clock, operator

    def now(self) -> int:
        now_us: int = self._clock.now()
        self._operator.note(TIMES, now_us)
        return now_us


class _NotingGate:
    def __init__(self, gate: Any, operator: _Noting) -> None:
        self._gate, self._operator = gate, operator

    def __getattr__(self, name: str) -> Any:
        return getattr(self._gate, name)

    def ask(self, kind: str, live: Callable[[], Any]) -> Any:
        try:
            value = self._gate.ask(kind, live)
        except ServiceError as problem:
            self._operator.note(ANSWERS, problem)
            raise
        self._operator.note(ANSWERS, value)
        return value


class _NotedRandom(random.Random):
    """Draws from ``shared``; its other methods call these."""

    def __new__(cls, shared: random.Random) -> _NotedRandom:
        return super().__new__(cls)

    def __init__(self, shared: random.Random) -> None:
        self.gauss_next = None
        self.shared = shared
        self.note: Callable[[float | int], None] = lambda value: None

    def random(self) -> float:
        value = self.shared.random()
        self.note(value)
        return value

    def getrandbits(self, k: int, /) -> int:
        value = self.shared.getrandbits(k)
        self.note(value)
        return value

    def gauss(self, mu: float = 0.0, sigma: float = 1.0) -> float:
        value = self.shared.gauss(0.0, 1.0)  # it computes two, and keeps one for the next call, maybe of another row
        self.note(value)
        return mu + value * sigma
