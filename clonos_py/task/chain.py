"""The chained operators of one task, wired to each other and to the task's outputs.

Rows pass through the chain depth first. Watermarks pass operator by operator, in topological order.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

import pyarrow as pa

from clonos_py.causal.determinants import Completion
from clonos_py.columns.chained import RunningChecksum
from clonos_py.columns.conforming import conformed
from clonos_py.model.errors import CheckpointError, ClonosError, Interrupted, UserCodeError, type_and_text
from clonos_py.model.ids import TaskId
from clonos_py.model.operators import EventTimeAssigner, Operator, PartwiseOperator, Sink
from clonos_py.model.places import blamed, located
from clonos_py.model.plan import PhysicalPlan, Vertex
from clonos_py.model.state import OperatorState
from clonos_py.model.times import MAX_TIME, MIN_TIME
from clonos_py.process.contract import TaskProgress
from clonos_py.task.at_work import NOTE, label, runs_operators
from clonos_py.task.context import OperatorView, TaskContext
from clonos_py.task.outputs import Outputs
from clonos_py.task.partwise import PartwiseState
from clonos_py.task.sink_rows import SinkRows, keeps_rows

R = TypeVar("R")

SOURCE = -1
"""The producer number of a vertex's source."""
NOT_ENDED = -1


class _Port:
    """The ``Output`` of one producer: passes the rows of each port to its consumers."""

    def __init__(self, chain: Chain, shared: TaskContext) -> None:
        self._chain, self._shared = chain, shared
        self.consumers: dict[int, list[tuple[int, int]]] = {}
        self.edges: dict[int, list[int]] = {}
        self.causal_sink: int | None = None
        """The number of the causal sink that owns this port; None for other operators."""

    def emit(self, rows: pa.RecordBatch, port: int = 0) -> None:
        if not rows.num_rows or self._shared.silent:
            return
        for operator, side in self.consumers.get(port, ()):
            self._chain.push(operator, rows, side)
        for edge in self.edges.get(port, ()):
            self._chain.outputs.emit(edge, rows)
        if self.causal_sink is not None:
            self._chain.outputs.publish(self.causal_sink, rows)


class _Stage(NamedTuple):
    """An operator in its chain. It follows the watermarks of its ``producers``; None stands for the task's input."""

    name: str
    operator: Operator
    context: OperatorView
    port: _Port
    producers: tuple[int | None, ...]
    where: str
    """The line of the user's code that defines it."""
    label: bytes
    """Its name as written to ``NOTE``."""
    tables: Mapping[str, pa.Schema]
    """The columns of the tables of its snapshots."""


class Chain:
    """Owns the operators of a task: opens, feeds, snapshots and restores them. Errors name the operator."""

    def __init__(self, plan: PhysicalPlan, task: TaskId, shared: TaskContext, outputs: Outputs) -> None:
        vertex = plan.by_name[task.vertex]
        self.outputs = outputs
        self._shared = shared
        self.source_port = _Port(self, shared)
        self._entries = {e.id: (e.consumer, e.side) for e in plan.edges if e.target == task.vertex}
        self._edges_of = {e.id: e.producer for e in plan.edges if e.source == task.vertex}
        entered = {consumer for consumer, _ in self._entries.values()}
        self._stages: list[_Stage] = []
        self._closed: set[int] = set()
        """The operators that have emitted their final results in an earlier run."""
        for number, operator_plan in enumerate(vertex.operators):
            producers: list[int | None] = [*sorted({w.producer for w in vertex.wires if w.consumer == number})]
            if number in entered:
                producers.append(None)
            context = OperatorView(shared, number, operator_plan.counts_as or operator_plan.name)
            self._stages.append(
                _Stage(
                    operator_plan.name,
                    operator_plan.factory(),
                    context,
                    _Port(self, shared),
                    tuple(producers),
                    operator_plan.where,
                    label(operator_plan.name),
                    operator_plan.tables,
                )
            )
        for wire in vertex.wires:
            self._port(wire.producer).consumers.setdefault(wire.port, []).append((wire.consumer, wire.side))
        for edge in plan.edges:
            if edge.source == task.vertex:
                self._port(edge.producer).edges.setdefault(edge.port, []).append(edge.id)
        for stage in self._stages:
            if stage.name in vertex.causal_sinks:
                stage.port.causal_sink = vertex.causal_sinks.index(stage.name)
            self._guard(stage, partial(stage.operator.open, stage.context, stage.port))
        self.ended = NOT_ENDED
        """The number of operators whose ``on_end`` was called; NOT_ENDED while input remains."""
        self.assigners = {
            number: stage.operator
            for number, stage in enumerate(self._stages)
            if isinstance(stage.operator, EventTimeAssigner)
        }
        """The operators that assign event time to the source's rows, by number."""
        fed = [number for number, stage in enumerate(self._stages) if plan.feeds(task) and keeps_rows(stage.operator)]
        self._given = {number: SinkRows() for number in fed}
        """By number of a sink."""
        sinks = [number for number, stage in enumerate(self._stages) if isinstance(stage.operator, Sink)]
        self._sunk = {number: RunningChecksum() for number in sinks} if plan.recorded else {}
        """By number of a sink: the checksum of the rows that it was given."""
        self.partwise = self._partwise(plan, vertex)
        """The operator whose state is saved in parts; None if there is none."""
        self._watermarks = dict.fromkeys(range(SOURCE, len(self._stages)), MIN_TIME)
        self._received = dict.fromkeys(range(len(self._stages)), MIN_TIME)

    def _partwise(self, plan: PhysicalPlan, vertex: Vertex) -> PartwiseState | None:
        if (number := plan.saved_in_parts(vertex)) is None:
            return None
        stage = self._stages[number]
        assert isinstance(stage.operator, PartwiseOperator)
        return PartwiseState(stage.operator, number, plan.footprints)

    def _port(self, producer: int) -> _Port:
        return self.source_port if producer == SOURCE else self._stages[producer].port

    @runs_operators
    def _guard(self, stage: _Stage, action: Callable[[], R]) -> R:
        note = NOTE.content
        before = note[:]
        note[:] = stage.label
        try:
            return action()
        except Interrupted:
            raise
        except UserCodeError as problem:
            raise located(problem, stage.where) from problem.__cause__
        except ClonosError:
            raise
        except BaseException as problem:
            message = f"operator {stage.name!r} raised {type_and_text(problem)}"
            raise located(blamed(message, problem), stage.where) from problem
        finally:
            note[:] = before

    def push(self, number: int, rows: pa.RecordBatch, side: int) -> None:
        stage = self._stages[number]
        if number in self._closed and rows.num_rows:
            raise CheckpointError(
                f"operator {stage.name!r} has emitted its final results: an earlier run had read all input, and now "
                f"there is more; start over with --fresh, add --drop-state {stage.name} to take the new rows without "
                "its state, or read them in a job of another name"
            )
        if number in self._given:
            self._given[number].add(side, rows)
        if number in self._sunk:
            self._sunk[number].add(rows)
        self._guard(stage, partial(stage.operator.on_rows, rows, side))

    def enter(self, edge: int, rows: pa.RecordBatch) -> None:
        """Pushes rows of an incoming edge into the chain."""
        number, side = self._entries[edge]
        self.push(number, rows, side)

    def settled(self, edge: int) -> None:
        """Each channel of the side to which this edge leads has ended, or has been idle."""
        number, side = self._entries[edge]
        self._guard(self._stages[number], partial(self._stages[number].operator.on_settled, side))
        self._release(number)

    def advance(self, watermark: int) -> None:
        """The task's input (its channels, or its source) is complete up to ``watermark``. A lower one than before
        changes nothing."""
        self._watermarks[SOURCE] = max(watermark, self._watermarks[SOURCE])
        self._pass_on()

    def assign(self, number: int, watermark: int) -> None:
        """Rows to which this operator assigns event time are complete up to ``watermark``."""
        self.assigners[number].set_watermark(watermark)
        self._release(number)

    def _pass_on(self) -> None:
        own = self._watermarks[SOURCE]
        for number, stage in enumerate(self._stages):
            reached = min((own if p is None else self._watermarks[p] for p in stage.producers), default=own)
            if reached > self._received[number]:
                self._received[number] = stage.context.watermark = reached
                held = self._guard(stage, partial(stage.operator.on_watermark, reached))
                self._watermarks[number] = max(held, self._watermarks[number])
        for edge, producer in self._edges_of.items():
            if self._watermarks[producer] != MAX_TIME:  # END says so; receivers with idle inputs need the one before
                self.outputs.advance(edge, self._watermarks[producer])

    def fire(self, number: int, at_us: int) -> None:
        stage = self._stages[number]
        self._guard(stage, partial(stage.operator.on_timer, at_us))
        self._release(number)

    def answer(self, completion: Completion) -> None:
        stage = self._stages[completion.operator]
        c = completion
        self._guard(stage, partial(stage.operator.on_answer, c.call, c.value, c.error))
        self._release(completion.operator)

    def _release(self, number: int) -> None:
        """Advances the watermark of operator ``number`` if the operator no longer holds it back."""
        released = self._stages[number].operator.released()
        if released > self._watermarks[number]:
            self._watermarks[number] = released
            self._pass_on()

    def end(self) -> bool:
        """All input has ended. Advances event time to its end, then calls ``on_end`` of each operator in order, once no
        operator before it holds unfinished rows. Returns whether all operators have finished."""
        self.ended = max(self.ended, 0)
        self.advance(MAX_TIME)
        while self.ended < len(self._stages) and not self._shared.working:
            stage = self._stages[self.ended]
            self.ended += 1
            if self.ended - 1 not in self._closed:
                self._guard(stage, stage.operator.on_end)
        return self.ended == len(self._stages) and not self._shared.working

    def prepare(self, checkpoint: int) -> dict[str, bytes]:
        """The committables that the sinks have prepared for ``checkpoint``, by sink name."""
        prepared = {}
        for stage in self._stages:
            if isinstance(stage.operator, Sink):
                committable = self._guard(stage, partial(stage.operator.prepare, checkpoint))
                if committable is not None:
                    prepared[stage.name] = committable
        return prepared

    @property
    def sinks(self) -> dict[str, Sink]:
        return {stage.name: stage.operator for stage in self._stages if isinstance(stage.operator, Sink)}

    def snapshot(self, partwise: Callable[[], OperatorState] | None = None) -> dict[str, OperatorState]:
        """The states at a barrier, after ``prepare``. ``partwise`` takes that of the operator whose state is saved in
        parts."""
        states = {}
        for number, stage in enumerate(self._stages):
            in_parts = self.partwise is not None and self.partwise.number == number
            state = self._guard(stage, partwise if in_parts and partwise is not None else stage.operator.snapshot)
            if number in self._given:
                self._given[number].barrier(state)
            if state.tables or state.values:
                states[stage.name] = state
        return states

    def fed(self) -> dict[str, OperatorState]:
        """The states at a feed point."""
        states = {}
        for number, stage in enumerate(self._stages):
            given = self._given.get(number)
            state = given.state if given is not None else self._guard(stage, stage.operator.snapshot)
            if state.tables or state.values:
                states[stage.name] = state
        return states

    def give(self) -> None:
        """The task begins at a feed point: sinks get the rows again that they were given since the last barrier. These
        are counted already."""
        counts = dict(self._shared.counts)
        for number, given in self._given.items():
            for side, rows in given.rows:
                self._guard(self._stages[number], partial(self._stages[number].operator.on_rows, rows, side))
        self._shared.counts = counts

    def begin_rebuild(self) -> None:
        """The rebuild of the operator whose state is saved in parts begins."""
        assert self.partwise is not None
        self._guard(self._stages[self.partwise.number], self.partwise.begin_rebuild)

    def rebuild(self, edge: int, rows: pa.RecordBatch | None, watermark: int) -> None:
        """An input event comes again, for the operator whose state is saved in parts."""
        assert self.partwise is not None
        stage = self._stages[self.partwise.number]
        self._shared.silent = True
        try:
            if rows is not None:
                _, side = self._entries[edge]
                self._guard(stage, partial(self.partwise.operator.rebuild, rows, side, self.partwise.taken))
            if watermark > stage.context.watermark:
                stage.context.watermark = watermark
                self._guard(stage, partial(stage.operator.on_watermark, watermark))
        finally:
            self._shared.silent = False

    def rebuilt(self) -> None:
        """The operator has the state of the snapshot."""
        assert self.partwise is not None
        stage = self._stages[self.partwise.number]
        self._guard(stage, self.partwise.operator.rebuilt)
        stage.context.watermark = self._received[self.partwise.number]

    @property
    def satisfied(self) -> bool:
        """Whether no further row has an effect: the first operator says so, which gets all of them."""
        return bool(self._stages) and self._stages[0].operator.satisfied

    @property
    def watermark(self) -> int:
        """Of the task's input."""
        return self._watermarks[SOURCE]

    @property
    def event_time(self) -> int:
        """The event time reached: the lowest watermark of operators that assign event time, else that of the input."""
        return min((self._watermarks[number] for number in self.assigners), default=self.watermark)

    def name_of(self, number: int) -> str:
        """The name of operator ``number``."""
        return self._stages[number].name

    @property
    def watermarks(self) -> list[int]:
        """The watermark of the task's input, then the output watermark of each operator."""
        return [self._watermarks[number] for number in range(SOURCE, len(self._stages))]

    @property
    def received(self) -> list[int]:
        """By operator: the last watermark that it received."""
        return [self._received[number] for number in range(len(self._stages))]

    @property
    def sunk(self) -> list[int]:
        """See ``TaskProgress``."""
        return [checksum.value for checksum in self._sunk.values()]

    def settle_sunk(self) -> None:
        """The task's progress is stored now."""
        for checksum in self._sunk.values():
            checksum.settle()

    def restore(
        self, parts: Mapping[str, Sequence[OperatorState]], progress: TaskProgress | None, closed: Collection[str] = ()
    ) -> None:
        """Replaces all state; operators without a snapshot start empty. ``closed``: see ``Restore``."""
        self._closed = {n for n, stage in enumerate(self._stages) if stage.name in closed and stage.operator.final}
        self.ended = progress.ended if progress else NOT_ENDED
        self._shared.calls.clear()
        self._shared.working.clear()
        self._shared.full.clear()
        sunk = progress.sunk if progress and len(progress.sunk) == len(self._sunk) else [0] * len(self._sunk)
        self._sunk = {number: RunningChecksum(value) for number, value in zip(self._sunk, sunk, strict=True)}
        for number in self._watermarks:
            self._watermarks[number] = progress.watermarks[number + 1] if progress else MIN_TIME
        for number, stage in enumerate(self._stages):
            self._received[number] = progress.received[number] if progress else MIN_TIME
            stage.context.watermark = self._received[number]
            stored = parts.get(stage.name, ())
            if number in self._given:
                stored = self._given[number].restore(stored)
            self._guard(stage, partial(self._restore, stage, stored))
            if self.partwise is not None and self.partwise.number == number:
                self.partwise.restore(stored, progress)
                if self.partwise.rebuilding:
                    stage.context.watermark = MIN_TIME

    def _restore(self, stage: _Stage, parts: Sequence[OperatorState]) -> None:
        stage.operator.restore(conformed(parts, stage.tables))

    def close(self) -> None:
        for stage in self._stages:
            self._guard(stage, stage.operator.close)
