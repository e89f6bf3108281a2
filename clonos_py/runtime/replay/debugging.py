"""Stops a replay in a debugger: before a row or timer reaches an operator, or where the user's code has failed.

The operators of the plan get subclasses that look at each row before the user's function does. The plan is changed
after it was compared with the record, so nothing else depends on it. While a replay is stopped, nothing outside waits:
time in it is that of the record.
"""

from __future__ import annotations

from bdb import BdbQuit
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow as pa

from clonos_py.causal.gate import Gate
from clonos_py.channel.frames import Frame
from clonos_py.dsl.job import Job
from clonos_py.model.errors import SettingError, UserCodeError
from clonos_py.model.ids import TaskId
from clonos_py.model.moments import moment_of
from clonos_py.model.operators import Operator, OperatorContext, Output
from clonos_py.model.plan import OperatorPlan, PhysicalPlan
from clonos_py.model.record import Record
from clonos_py.model.record_codec import decode_each
from clonos_py.operators.async_rows import MapAsyncRows
from clonos_py.operators.failures import RowFailures
from clonos_py.operators.process import ProcessOperator
from clonos_py.operators.rows import MapRows
from clonos_py.operators.stateless import MapBatches
from clonos_py.operators.subclassing import subclassed
from clonos_py.plan.logical import RunProcess
from clonos_py.runtime.replay.interval import RecordedTask
from clonos_py.runtime.replay.operator_inputs import ADDED, Planned, planned, row_types
from clonos_py.runtime.replay.predicates import Condition, RowPredicate
from clonos_py.runtime.replay.stopping import DebuggerQuit, Moment, StopBefore, before_batch, stopped


@dataclass(frozen=True)
class Wanted:
    """Where to stop. If nothing is given: only where the user's code fails.

    ``row``: before each row for which it holds. ``nth``: before the n-th row, from 1, in the order of the replay, of
    those for which ``row`` holds. ``operator``: only of this one."""

    row: RowPredicate | None = None
    nth: int | None = None
    operator: str | None = None

    @property
    def a_row(self) -> bool:
        """Whether it names rows."""
        return self.row is not None or self.nth is not None


@dataclass
class _Target:
    """An operator at which to stop. ``conditions``: by side, what must hold; a side that is absent is passed over."""

    planned: Planned
    rows: Mapping[int, type[Record]]
    conditions: Mapping[int, Condition | None]
    timers: Condition | None
    nth: int | None
    seen: int = 0
    """How many rows for which the condition holds have come."""

    def meets(self, row: Any, side: int = 0, key: Any = None) -> bool:
        """Whether to stop before this row, which counts."""
        if side not in self.conditions:
            return False
        condition = self.conditions[side]
        if condition is not None and not condition(row, key, None):
            return False
        self.seen += 1
        return self.nth is None or self.seen == self.nth


class Debugger:
    """Watches the operators of a replay."""

    def __init__(
        self,
        job: Job,
        wanted: Wanted,
        announce: Callable[[Moment], None],
        post_mortem: Callable[[UserCodeError, Moment | None], None],
    ) -> None:
        """``announce`` is called before each stop, ``post_mortem`` where the user's code has failed, with the moment
        if that is known."""
        self.wanted, self.announce, self._post_mortem = wanted, announce, post_mortem
        self._graph = job.graph()
        self._targets: dict[str, _Target] = {}
        self._plan: PhysicalPlan | None = None
        self.failure: Moment | None = None
        """Where the user's code has failed; None if it has not, or if that is not known."""
        self.stops = 0

    # ---- what is watched

    def tasks(self, plan: PhysicalPlan) -> list[str]:
        """The names of the tasks that have the operators; empty for all. Raises SettingError for a name that is
        unknown."""
        self._plan = plan
        seen = {name: target.seen for name, target in self._targets.items()}
        self._targets = {name: replace(t, seen=seen.get(name, 0)) for name, t in self._chosen(plan).items()}
        if not self.wanted.a_row and self.wanted.operator is None:
            return []
        vertices = {target.planned.vertex.name for target in self._targets.values()}
        return [str(task) for task in plan.tasks if task.vertex in vertices]

    def watched(self, plan: PhysicalPlan) -> PhysicalPlan:
        """The plan with operators that stop."""
        return plan.with_operators(self._operator)

    def _operator(self, operator: OperatorPlan) -> OperatorPlan:
        target = self._targets.get(operator.name)
        if target is None:
            return operator
        return replace(operator, factory=partial(_debugged, operator.factory, target, self))

    def _chosen(self, plan: PhysicalPlan) -> dict[str, _Target]:
        everything = {found.plan.name: found for found in planned(plan, self._graph) if found.plan.verb not in ADDED}
        row, name = self.wanted.row, self.wanted.operator
        if name is not None and name not in everything:
            raise SettingError(f"there is no operator {name!r}: choose from {', '.join(everything)}")
        candidates = [found for found in everything.values() if found.calls_user]
        if name is not None:
            candidates = [everything[name]]
        if name is None and self.wanted.nth is not None and row is None and len(candidates) != 1:
            raise SettingError(f"name the operator whose row it is by --operator: {', '.join(everything)}")
        if not candidates and self.wanted.a_row:
            raise SettingError(
                f"the job has no function of yours: name an operator by --operator: {', '.join(everything)}"
            )
        targets = {found.plan.name: self._target(plan, found) for found in candidates}
        fitting = {name: t for name, t in targets.items() if t.conditions or t.timers or not self.wanted.a_row}
        if targets and not fitting:
            assert row is not None
            raise SettingError(_misfit(row, targets))
        return fitting

    def _target(self, plan: PhysicalPlan, found: Planned) -> _Target:
        types, row = row_types(plan, found), self.wanted.row
        keyed = found.node is not None and isinstance(found.node.work, RunProcess)
        conditions: dict[int, Condition | None] = {}
        timers = None
        if row is None:
            conditions = dict.fromkeys(types)
        else:
            for side, record in types.items():
                if not row.unknown(record.__struct_fields__, keyed):
                    conditions[side] = row.condition(record.__struct_fields__)
            if keyed and row.of_timers and not row.unknown(found.keys(0), keyed):
                timers = row.condition(found.keys(0))
        return _Target(found, types, conditions, timers, self.wanted.nth)

    def begin(self, recorded: Mapping[TaskId, RecordedTask]) -> None:
        """Nothing depends on where the tasks begin."""

    def delivered(self, sender: TaskId, output: int, frame: Frame) -> None:
        """Frames are seen when a task takes them."""

    def failed(self, error: UserCodeError) -> None:
        if isinstance(error.__cause__, BdbQuit):  # by a command in a frame behind the function's
            raise DebuggerQuit from error
        self._post_mortem(error, self.failure)

    @property
    def rows_seen(self) -> int:
        """How many rows for which the condition holds have come."""
        return sum(target.seen for target in self._targets.values())

    @property
    def names(self) -> list[str]:
        """The operators that are watched."""
        return list(self._targets)

    # ---- moments

    def stop(self, moment: Moment) -> StopBefore:
        self.stops += 1
        return StopBefore(moment, self.announce)

    def frame_of(self, ctx: OperatorContext) -> str:
        """What the task performs: the frame that it takes, or another event."""
        channel, number = ctx.frame
        if channel < 0:
            return f"none: event {number} of {ctx.task} that takes no frames"
        assert self._plan is not None
        found = self._plan.inputs[ctx.task][channel]
        merged = self._plan.edges[found.edge].merge_rows > 0
        return f"{number} of {self._plan.sender(found)}{', or one that was taken with it' if merged else ''}"


def _misfit(row: RowPredicate, targets: Mapping[str, _Target]) -> str:
    has = {name: [n for t in target.rows.values() for n in t.__struct_fields__] for name, target in targets.items()}
    unknown = row.unknown({name for names in has.values() for name in names}, keyed=True)
    columns = "; ".join(f"{name} has {', '.join(dict.fromkeys(names))}" for name, names in has.items())
    if unknown:
        return f"no row has a column {unknown[0]!r}: {columns}"
    return f"no function's rows have all columns of {row.text!r}: {columns}"


# ---- operators that stop


class _Debugged(Operator):
    """What the subclasses share."""

    target: _Target
    debugger: Debugger

    def moment(
        self,
        row: Any,
        key: Any = None,
        state: Mapping[str, Any] | None = None,
        timer: str | None = None,
    ) -> Moment:
        found = self.target.planned
        return Moment(
            found.plan.name, found.plan.where, self.ctx.task, row, key, state, timer, _time(self.ctx),
            self.debugger.frame_of(self.ctx),
        )  # fmt: skip

    def first(self, rows: pa.RecordBatch, side: int) -> Record | None:
        """The first row of a batch before which to stop; None if there is none. All rows count."""
        target = self.target
        if side not in target.conditions:
            return None
        if target.conditions[side] is None and target.nth is not None:
            position, target.seen = target.nth - target.seen - 1, target.seen + rows.num_rows
            return self.record(rows, position, side) if 0 <= position < rows.num_rows else None
        found = None
        for records, _ in decode_each(rows, target.rows[side], _passed_over):
            for record in records:
                if target.meets(record, side) and found is None:
                    found = record
        return found

    def record(self, rows: pa.RecordBatch, position: int, side: int = 0) -> Record | None:
        """A row of a batch; None if it has a value that Python does not have."""
        one = decode_each(rows.slice(position, 1), self.target.rows[side], _passed_over)
        return next((record for records, _ in one for record in records), None)

    def key(self, row: Any, side: int) -> dict[str, Any] | None:
        names = self.target.planned.keys(side)
        return {name: getattr(row, name, None) for name in names} if names and row is not None else None


def _passed_over(row: int, error: Exception) -> None:
    """A row that cannot be decoded is the failure of the operator that gets it."""


def _time(ctx: OperatorContext) -> str:
    at_us = ctx.gate.last_answered_us if isinstance(ctx.gate, Gate) else None
    if at_us is not None:
        return f"{moment_of(at_us):%Y-%m-%d %H:%M:%S.%f} UTC, the last answer of the clock"
    epoch = ctx.gate.writer.epoch if isinstance(ctx.gate, Gate) else 0
    return f"not asked for since {f'checkpoint {epoch}' if epoch else 'the beginning of the job'}"


class _Function:
    """A user's function of one row, with stops before it."""

    def __init__(self, function: Callable[..., Any], operator: _Debugged) -> None:
        self.__wrapped__ = function
        self._operator, self._meets = operator, operator.target.meets

    def __call__(self, row: Any, **services: Any) -> Any:
        if not self._meets(row):
            return self.__wrapped__(row, **services)
        stop = self._operator.debugger.stop(self._operator.moment(row))
        return stopped(stop, self.__wrapped__, (row,), services)


class _NotedFailures(RowFailures):
    """Notes where the first failure was that stops the job."""

    def __init__(self, ctx: OperatorContext, catch: bool, operator: _Debugged) -> None:
        super().__init__(ctx, catch)
        self._notes, self._operator = not catch, operator

    def add(self, rows: pa.RecordBatch, row: int, *more: Any, **given: Any) -> None:
        if self._notes:
            self._operator.debugger.failure = self._operator.moment(self._operator.record(rows, row))
        super().add(rows, row, *more, **given)


class _OfFunctions(_Debugged):
    """What the operators share that call a function for each row."""

    _fn: Callable[..., Any]
    _catch: bool
    _failures: RowFailures

    def open(self, ctx: OperatorContext, out: Output) -> None:
        super().open(ctx, out)
        self._failures = _NotedFailures(ctx, self._catch, self)
        self._given = self._fn
        self._fn = _watched(self._fn, self)

    def close(self) -> None:
        self._fn = self._given
        super().close()


class _OfRows(_OfFunctions, MapRows):
    """Stops before a function of one row."""


class _OfAsyncRows(_OfFunctions, MapAsyncRows):
    """Stops in the coroutine of one row."""


def _watched(function: Callable[..., Any], operator: _Debugged) -> Callable[..., Any]:
    """The function itself if there is no row to stop at: a failure is noted anyway."""
    return _Function(function, operator) if operator.debugger.wanted.a_row else function


class _OfBatches(_Debugged, MapBatches):
    """Stops before a function of a batch that has the row."""

    def _applied(self, rows: pa.RecordBatch) -> Any:
        row = self.first(rows, 0) if self.debugger.wanted.a_row else None
        given = self._fn
        if row is not None:
            self._fn = partial(_called, self.debugger.stop(self.moment(row)), given)
        try:
            return super()._applied(rows)
        except Exception:
            self.debugger.failure = self.moment(row)
            raise
        finally:
            self._fn = given


def _called(stop: StopBefore, function: Callable[..., Any], *given: Any, **services: Any) -> Any:
    return stopped(stop, function, given, services)


class _OfProcess(_Debugged, ProcessOperator):
    """Stops before a process function gets a row or a timer."""

    def open(self, ctx: OperatorContext, out: Output) -> None:
        super().open(ctx, out)
        wanted = self.debugger.wanted
        self._looks = wanted.a_row
        self._needs_key = wanted.row is not None and wanted.row.of_keys

    def _failure(self, call: Callable[..., Any], *given: Any) -> BaseException | None:
        timer = None if len(given) > 1 else self._timer(call)
        row = given[0] if timer is None else None
        if self._looks and self._stops(row, call, timer):
            call = partial(_called, self.debugger.stop(self._moment(row, timer)), call)
        error = super()._failure(call, *given)
        if error is not None and not self._catch:
            self.debugger.failure = self._moment(row, timer)
        return error

    def _stops(self, row: Any, call: Callable[..., Any], timer: str | None) -> bool:
        if timer is None:
            side = 0 if call is self._calls[0] else 1
            return self.target.meets(row, side, self._key() if self._needs_key else None)
        of_timers = self.target.timers
        return of_timers is not None and of_timers(_Key(self._by_name), self._key(), timer)

    def _timer(self, call: Callable[..., Any]) -> str:
        timers = self._type.declared_timers
        return next(name for name, timer in timers.items() if timer.callback == call.__name__)

    @property
    def _by_name(self) -> dict[str, Any]:
        return self._keys.by_name(self.cell.key)

    def _moment(self, row: Any, timer: str | None) -> Moment:
        state = {
            name: (self.cell if declared.by_key else self.shared).values.get(name, declared.default)
            for name, declared in self._type.declared_states.items()
        }
        return self.moment(row, self._by_name, state, timer)


@dataclass(frozen=True)
class _Key:
    """The columns of a key as attributes, for a condition on a timer."""

    by_name: Mapping[str, Any] = field(repr=True)

    def __getattr__(self, name: str) -> Any:
        return self.by_name[name]


class _OfOther(_Debugged):
    """Stops before any other operator gets a batch that has the row."""

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        row = self.first(rows, side)
        if row is None:
            super().on_rows(rows, side)
            return
        before_batch(self.debugger.stop(self.moment(row, self.key(row, side))), super().on_rows, rows, side)


_KINDS: dict[type[Operator], type[_Debugged]] = {
    MapRows: _OfRows,
    MapAsyncRows: _OfAsyncRows,
    MapBatches: _OfBatches,
    ProcessOperator: _OfProcess,
}


def _debugged(factory: Callable[[], Operator], target: _Target, debugger: Debugger) -> Operator:
    return subclassed(factory, _KINDS, _OfOther, target=target, debugger=debugger)
