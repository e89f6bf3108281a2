"""Runs a physical plan without a runtime: vertex after vertex, every operator made by its factory, rows pushed through
wires and edges by hand, the watermark at the end only."""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import pyarrow as pa

from clonos_py.columns.keys import key_groups
from clonos_py.columns.partition import split
from clonos_py.columns.row_watermarks import with_watermarks
from clonos_py.model.ids import TaskId
from clonos_py.model.operators import Operator, Read, Sink
from clonos_py.model.plan import Edge, Partitioning, PhysicalPlan
from clonos_py.model.times import MAX_TIME, MIN_TIME


class Context:
    """The context of operators; time stands still."""

    def __init__(self, plan: PhysicalPlan, task: TaskId, operator: str) -> None:
        self.task, self.operator = task, operator
        self.parallelism = plan.by_name[task.vertex].parallelism
        self.groups, self.key_groups = plan.groups(task), plan.key_groups
        self.watermark, self.frame = MIN_TIME, (0, 0)
        self.time, self.random, self.gate = self, random.Random(1), self

    def now(self) -> int:
        return 0

    def ask(self, kind: str, live: Any) -> Any:
        return live()

    def set_timer(self, at: int) -> None:
        """Processing time stands still, so no timer fires."""

    def clear_timer(self, at: int) -> None:
        """There are no timers."""

    def count(self, metric: str, amount: int) -> None:
        """Counts are ignored."""


class ByHand:
    """``rows`` of every sink, in the order they came, by the sink's name."""

    def __init__(self, plan: PhysicalPlan) -> None:
        self.plan = cloudpickle.loads(cloudpickle.dumps(plan))
        self.rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self.frames: dict[int, list[pa.RecordBatch]] = defaultdict(list)
        self._arrived: dict[TaskId, list[tuple[Edge, pa.RecordBatch]]] = defaultdict(list)
        self._turn = itertools.count()
        for task in self.plan.tasks:
            _Task(self, task).run()

    def send(self, edge: Edge, rows: pa.RecordBatch, sender: int) -> None:
        assert rows.schema.names == edge.schema.names, (edge, rows.schema)
        assert rows.schema.types == edge.schema.types
        self.frames[edge.id].append(rows)
        parallelism = self.plan.by_name[edge.target].parallelism
        match edge.partitioning:
            case Partitioning.HASH:
                groups = key_groups(rows, edge.keys, self.plan.key_groups)
                owners = (groups * parallelism // self.plan.key_groups).astype("int32")
                parts = split(rows, owners, parallelism)
            case Partitioning.FORWARD:
                parts = [rows if index == sender else None for index in range(parallelism)]
            case _:
                turn = next(self._turn) % parallelism
                parts = [rows if index == turn else None for index in range(parallelism)]
        for index, part in enumerate(parts):
            if part is not None and part.num_rows:
                self._arrived[TaskId(edge.target, index)].append((edge, part))

    def arrived(self, task: TaskId) -> list[tuple[Edge, pa.RecordBatch]]:
        return self._arrived[task]


class _Port:
    def __init__(self, task: _Task, producer: int) -> None:
        self._task, self._producer = task, producer

    def emit(self, rows: pa.RecordBatch, port: int = 0) -> None:
        self._task.emit(self._producer, port, rows)


class _Task:
    def __init__(self, hand: ByHand, task: TaskId) -> None:
        self._hand, self._task = hand, task
        self._vertex = hand.plan.by_name[task.vertex]
        self._operators: list[Operator] = [operator.factory() for operator in self._vertex.operators]
        for number, (operator, described) in enumerate(zip(self._operators, self._vertex.operators, strict=True)):
            context: Any = Context(hand.plan, task, described.name)
            operator.open(context, _Port(self, number))

    def run(self) -> None:
        self._read()
        for edge, rows in self._hand.arrived(self._task):
            self._push(edge.consumer, rows, edge.side)
        for operator in self._operators:
            operator.ctx.watermark = MAX_TIME  # type: ignore[misc]
            operator.on_watermark(MAX_TIME)
            operator.on_end()

    def _read(self) -> None:
        if self._vertex.source is None:
            return
        source = self._vertex.source.factory()
        source.open(self._task.index, self._vertex.parallelism)
        source.seek({})
        while isinstance(read := source.poll(0), Read):
            for port, rows in enumerate(read.rows):
                if rows is not None:
                    assert rows.schema.names == self._vertex.source.schemas[port].names
                    marked = port in self._vertex.source.marked
                    none_behind = pa.nulls(rows.num_rows, pa.int64())
                    self.emit(-1, port, with_watermarks(rows, none_behind) if marked else rows)

    def emit(self, producer: int, port: int, rows: pa.RecordBatch) -> None:
        if not rows.num_rows:
            return
        if producer >= 0:
            assert rows.schema.names == self._vertex.operators[producer].schemas[port].names
            assert rows.schema.types == self._vertex.operators[producer].schemas[port].types
        for wire in self._vertex.wires:
            if (wire.producer, wire.port) == (producer, port):
                self._push(wire.consumer, rows, wire.side)
        for edge in self._hand.plan.edges:
            if (edge.source, edge.producer, edge.port) == (self._vertex.name, producer, port):
                self._hand.send(edge, rows, self._task.index)

    def _push(self, consumer: int, rows: pa.RecordBatch, side: int) -> None:
        if isinstance(self._operators[consumer], Sink):
            self._hand.rows[self._vertex.operators[consumer].name].extend(rows.to_pylist())
        else:
            self._operators[consumer].on_rows(rows, side)
