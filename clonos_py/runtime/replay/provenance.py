"""Finds the input rows of each operator from which a row of a sink came, as far as frames tell (provenance).

In a replay all operators note what they take and emit, until the sink gets the row. From there the way leads back: from
a row that an operator took to the operator that had emitted it, in the same task or through a frame of another, and
from there to the rows that this one had taken (``row_rules.py``). All batches of the interval are kept in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from clonos_py.channel.frames import Frame
from clonos_py.columns.views import Ints
from clonos_py.dsl.job import Job
from clonos_py.model.errors import Interrupted, SettingError, UserCodeError
from clonos_py.model.hidden import is_hidden
from clonos_py.model.ids import TaskId
from clonos_py.model.moments import shown_rows
from clonos_py.model.operators import OperatorContext
from clonos_py.model.plan import OperatorPlan, PhysicalPlan, Vertex
from clonos_py.model.record_codec import decode_each
from clonos_py.plan.rewrite import rewritten
from clonos_py.runtime.replay.channel_rows import ChannelRows
from clonos_py.runtime.replay.histories import FromFrames, FromOperator, FromSource, Positions, TaskHistory, joined
from clonos_py.runtime.replay.interval import RecordedTask
from clonos_py.runtime.replay.operator_inputs import ADDED, Planned, planned, row_types
from clonos_py.runtime.replay.predicates import RowPredicate
from clonos_py.runtime.replay.row_rules import TracedRows, inputs_of
from clonos_py.runtime.replay.traced_operators import TracedOperator, traced

SOURCE = -1
_HIDDEN = frozenset({"drop late", "narrow"})
"""The verbs of operators that the planner adds and that change no row."""
OperatorPlace = tuple[int, int]
"""The position of a vertex in the plan, and the number of an operator in it (SOURCE: its source)."""


@dataclass
class TraceStep:
    """The rows that one operator took and from which the row came. For a source: the rows that it read."""

    operator: str
    verb: str
    where: str
    """The line of the user's code that defines it."""
    before: list[str]
    """The operators whose rows these became: the next ones on the way to the sink."""
    count: int
    rows: list[dict[str, Any]]
    """The first rows, by column."""
    how: list[str]
    """Why these, and how exact that is: one text for each way in which rows were found."""
    exact: bool
    frames: list[str]
    """In which frames of which senders the rows came."""
    called: list[dict[str, Any]] = field(default_factory=list)
    """The first of those rows for which a process function gave the results."""
    notes: list[str] = field(default_factory=list)


class RowFound(Interrupted):
    """The sink has got the row: the replay need not go on."""


@dataclass
class WantedRows:
    """Results that are asked for. ``rows``: by task and number of an emitted batch."""

    rows: dict[TaskId, list[Positions]] = field(default_factory=dict)
    before: list[str] = field(default_factory=list)


class Tracer:
    """Watches the operators of a replay for the first row of a sink that meets a condition."""

    def __init__(self, job: Job, row: RowPredicate, sink: str | None, rows_max: int = 10) -> None:
        """``sink``: its name; None if the job has one only. ``rows_max``: the most rows of a step to show."""
        self._written, self._graph = job.graph(), rewritten(job.graph())
        self._row, self._sink, self._rows_max = row, sink, rows_max
        self._begins_at_a_checkpoint = False
        self._found: tuple[TaskId, int, int, int] | None = None
        """Task and number of the sink, batch and row."""

    # ---- what is watched

    def tasks(self, plan: PhysicalPlan) -> list[str]:
        self._plan = plan
        self._operators = {(o.vertex.name, o.number): o for o in planned(plan, self._graph)}
        sinks = {o.plan.name: o for o in self._operators.values() if o.plan.sink}
        if self._sink is None and len(sinks) > 1:
            raise SettingError(f"name the sink whose row it is by --sink: {', '.join(sinks)}")
        if self._sink is not None and self._sink not in sinks:
            raise SettingError(f"there is no sink {self._sink!r}: choose from {', '.join(sinks)}")
        self._end = sinks[self._sink] if self._sink is not None else next(iter(sinks.values()))
        self._record = row_types(plan, self._end)[0]
        columns = self._record.__struct_fields__
        if unknown := self._row.unknown(columns):
            name = self._end.plan.name
            raise SettingError(f"the rows of {name} have no column {unknown[0]!r}: {name} has {', '.join(columns)}")
        self._condition = self._row.condition(columns)
        return [str(task) for task in plan.tasks if task.vertex == self._end.vertex.name]

    def watched(self, plan: PhysicalPlan) -> PhysicalPlan:
        return replace(plan, vertices=tuple(self._vertex(vertex) for vertex in plan.vertices))

    def _vertex(self, vertex: Vertex) -> Vertex:
        return replace(
            vertex, operators=tuple(self._operator(vertex, n, found) for n, found in enumerate(vertex.operators))
        )

    def _operator(self, vertex: Vertex, number: int, operator: OperatorPlan) -> OperatorPlan:
        ends = (vertex.name, number) == (self._end.vertex.name, self._end.number)
        return replace(
            operator, factory=partial(traced, operator.factory, number, self._history, self._look if ends else None)
        )

    def _history(self, ctx: OperatorContext) -> TaskHistory:
        return self._tasks.setdefault(ctx.task, TaskHistory())

    def begin(self, recorded: Mapping[TaskId, RecordedTask]) -> None:
        self._tasks: dict[TaskId, TaskHistory] = {}
        self._channels = ChannelRows(self._plan, recorded)
        self._begins_at_a_checkpoint = any(found.start.checkpoint for found in recorded.values())

    def delivered(self, sender: TaskId, output: int, frame: Frame) -> None:
        self._channels.add(sender, output, frame)

    def failed(self, error: UserCodeError) -> None:
        """The row was not found before."""

    def _look(self, operator: TracedOperator, rows: pa.RecordBatch) -> None:
        """Raises RowFound if one of the rows meets the condition."""
        for records, numbers in decode_each(rows, self._record, lambda row, error: None):
            for record, number in zip(records, numbers, strict=True):
                if self._condition(record, None, None):
                    self._found = operator.ctx.task, operator.number, operator.batch, number
                    raise RowFound

    # ---- the way back

    def steps(self) -> list[TraceStep]:
        """The operators that the row came through, from the sink to the sources. Empty if the row was not found."""
        if self._found is None:
            return []
        task, number, batch, row = self._found
        self._wanted: dict[OperatorPlace, WantedRows] = {}
        self._asked: dict[tuple[TaskId, int, int], Ints] = {}
        """By task, operator and batch: the rows that were asked for."""
        self._asking = task, batch, np.array([row])
        """The task, and the rows of a batch that it has taken, for whose origins ``_ask`` asks."""
        self._reads: dict[int, pa.RecordBatch] = {}
        """By order of reading: batches that sources have read."""
        place = self._place(task.vertex, number)
        start: dict[TaskId, Positions] = {task: {batch: np.array([row])}}
        steps = [self._step(place, start, ["the row itself"], True, [], False)]
        while self._wanted:
            place = max(self._wanted)
            wanted = self._wanted.pop(place)
            steps.append(self._source(place, wanted) if place[1] == SOURCE else self._inputs(place, wanted))
        return [step for step in steps if step.verb not in _HIDDEN]

    def _place(self, vertex: str, number: int) -> OperatorPlace:
        return next(n for n, found in enumerate(self._plan.vertices) if found.name == vertex), number

    def _inputs(self, place: OperatorPlace, wanted: WantedRows) -> TraceStep:
        operator = self._operator_at(place)
        node = operator.node if operator.plan.verb not in ADDED else self._behind(operator).node
        taken: dict[TaskId, list[Positions]] = {}
        hows: dict[str, None] = {}
        exact, state, called = True, False, []
        for task, parts in wanted.rows.items():
            history = self._tasks[task].operator(operator.number)
            for number, rows in joined(parts).items():
                found = inputs_of(TracedRows(history, history.emitted[number], rows, operator.plan.verb, node))
                taken.setdefault(task, []).append(found.rows)
                hows[found.how] = None
                exact, state = exact and found.exact, state or found.state
                called += [(history.taken[batch].rows, at) for batch, at in found.called.items()]
        rows_of = {task: joined(parts) for task, parts in taken.items()}
        step = self._step(place, rows_of, list(hows), exact, wanted.before, state)
        step.called = self._shown(called)
        return step

    def _behind(self, operator: Planned) -> Planned:
        """The next operator that the job has, behind one that the planner adds."""
        while operator.plan.verb in ADDED:
            vertex, number = operator.vertex, operator.number
            inside = next((wire.consumer for wire in vertex.wires if wire.producer == number), None)
            if inside is not None:
                operator = self._operators[vertex.name, inside]
            else:
                edge = next(e for e in self._plan.edges if (e.source, e.producer) == (vertex.name, number))
                operator = self._operators[edge.target, edge.consumer]
        return operator

    def _operator_at(self, place: OperatorPlace) -> Planned:
        return self._operators[self._plan.vertices[place[0]].name, place[1]]

    def _step(
        self,
        place: OperatorPlace,
        rows: Mapping[TaskId, Positions],
        how: list[str],
        exact: bool,
        before: list[str],
        state: bool,
    ) -> TraceStep:
        """The step of an operator that has taken these rows. Asks for where they came from."""
        operator = self._operator_at(place)
        name = (
            operator.plan.name if operator.plan.verb != "combine" else f"{self._behind(operator).plan.name}, combined"
        )
        shown = before if operator.plan.verb in _HIDDEN else [name]
        pieces, frames, notes = [], [], []
        for task, positions in rows.items():
            history = self._tasks[task].operator(operator.number)
            for number, places in positions.items():
                self._asking = task, number, places
                taken = history.taken[number]
                pieces.append((taken.rows, places))
                match taken.origin:
                    case FromOperator(producer, emitted):
                        self._ask((place[0], producer), task, {emitted: places}, shown)
                    case FromFrames(channel, first):
                        found, noted = self._ask_senders(task, channel, first, taken.rows, places, shown)
                        frames += found
                        notes += noted
                    case FromSource(event):
                        read = self._read(event, taken.rows)
                        self._ask((place[0], SOURCE), task, {read: places}, shown)
        if state and self._begins_at_a_checkpoint:
            notes.append("rows from before the interval, which are in the state that it began with, are not shown")
        name = (
            operator.plan.name if operator.plan.verb != "combine" else f"{self._behind(operator).plan.name}, combined"
        )
        return TraceStep(
            name, operator.plan.verb, operator.plan.where, before, _count(pieces), self._shown(pieces), how, exact,
            _together(frames), notes=list(dict.fromkeys(notes)),
        )  # fmt: skip

    def _ask_senders(
        self, task: TaskId, channel: int, first: int, rows: pa.RecordBatch, places: Ints, shown: list[str]
    ) -> tuple[list[tuple[str, int]], list[str]]:
        """Asks the senders of frames for their rows. Returns the frames, as (sender, number), and notes."""
        found = self._plan.inputs[task][channel]
        sender, edge = self._plan.sender(found), self._plan.edges[found.edge]
        place = self._place(edge.source, edge.producer)
        frames, notes = [], []
        batch = self._asking[1]
        for part in self._channels.frames(found, first, places):
            frames.append((str(sender), part.number))
            if part.of_channel is None:
                notes.append(f"frames of {sender} from before the interval: what was before them is not known")
            elif edge.producer == SOURCE:
                self._asking = task, batch, part.places
                self._ask(place, sender, {self._read(part.number, rows): part.places}, shown)
            elif emitted := self._emitted(found, sender, edge.producer, rows, part.places, part.of_channel):
                done = 0
                for number, at in emitted.items():
                    self._asking = task, batch, part.places[done : done + len(at)]
                    done += len(at)
                    self._ask(place, sender, {number: at}, shown)
            else:
                notes.append(f"which rows of {sender} these are is not known")
        return frames, notes

    def _read(self, number: int, rows: pa.RecordBatch) -> int:
        """Notes a batch of a source. ``number``: of the event or frame in which its task gave it."""
        place = number << 32
        while self._reads.setdefault(place, rows) is not rows:
            place += 1
        return place

    def _emitted(
        self, channel: Any, sender: TaskId, producer: int, rows: pa.RecordBatch, places: Ints, numbers: Ints
    ) -> dict[int, Ints]:
        """The rows among those that the sender's operator has emitted; empty if they are not equal to these."""
        history = self._tasks[sender]
        emitted, found, done = history.operator(producer).emitted, {}, 0
        for number, at in self._channels.emitted(channel, history, numbers):
            if not emitted[number].rows.take(at).equals(rows.take(places[done : done + len(at)])):
                return {}
            found[number], done = at, done + len(at)
        return found

    def _ask(self, place: OperatorPlace, task: TaskId, rows: Positions, shown: list[str]) -> None:
        """Asks for rows of an operator, unless that was done before: rows of a loop may lead back to it."""
        for number, at in rows.items():
            before = self._asked.get((task, place[1], number), at[:0])
            fresh = np.setdiff1d(at, before)
            if not len(fresh):
                continue
            self._asked[task, place[1], number] = np.union1d(before, fresh)
            wanted = self._wanted.setdefault(place, WantedRows())
            wanted.rows.setdefault(task, []).append({number: fresh})
            wanted.before += [name for name in shown if name not in wanted.before]

    def _source(self, place: OperatorPlace, wanted: WantedRows) -> TraceStep:
        source = self._plan.vertices[place[0]].source
        assert source is not None
        pieces = [(self._reads[n], at) for parts in wanted.rows.values() for n, at in joined(parts).items()]
        where = next((node.where for node in self._written.nodes if node.name == source.name), "")
        return TraceStep(
            source.name, "source", where, wanted.before, _count(pieces), self._shown(pieces), ["rows that it read"],
            True, [],
        )  # fmt: skip

    def _shown(self, pieces: list[tuple[pa.RecordBatch, Ints]]) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for rows, at in pieces:
            visible = rows.select([name for name in rows.schema.names if not is_hidden(name)])
            found += shown_rows(visible.take(at[: self._rows_max - len(found)]))
            if len(found) == self._rows_max:
                break
        return found


def _count(pieces: list[tuple[pa.RecordBatch, Ints]]) -> int:
    return sum(len(at) for _, at in pieces)


def _together(frames: list[tuple[str, int]]) -> list[str]:
    """By sender: the numbers of its frames, runs as first and last."""
    senders: dict[str, set[int]] = {}
    for sender, number in frames:
        senders.setdefault(sender, set()).add(number)
    return [
        f"frame{'s' if len(numbers) > 1 else ''} {', '.join(_runs(sorted(numbers)))} of {sender}"
        for sender, numbers in sorted(senders.items())
    ]


def _runs(numbers: list[int]) -> Iterator[str]:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return (f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
