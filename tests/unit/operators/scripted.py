"""A context whose answers a test sets, a gate that logs and replays, and an output that collects rows."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from clonos_py.columns.keys import key_groups
from clonos_py.model.errors import ServiceError
from clonos_py.model.ids import TaskId
from clonos_py.model.operators import Operator
from clonos_py.model.snapshots import StoredChunk
from clonos_py.model.state import Chunk, OperatorState
from clonos_py.model.times import MIN_TIME
from clonos_py.model.user_metrics import MetricDefinition, UserMetric, after
from clonos_py.operators import keyed_rows


class ScriptedGate:
    """Logs the answers of ``live``; with a log given, answers from that first."""

    def __init__(self, log: list[tuple[str, Any]] | None = None) -> None:
        self.replay = list(log or [])
        self.log: list[tuple[str, Any]] = []

    def ask(self, kind: str, live: Callable[[], Any]) -> Any:
        if self.replay:
            logged_kind, answer = self.replay.pop(0)
            assert logged_kind == kind
        else:
            try:
                answer = live()
            except ServiceError as error:
                answer = error
        self.log.append((kind, answer))
        if isinstance(answer, ServiceError):
            raise ServiceError(str(answer))
        return answer


class ScriptedClock:
    def __init__(self, gate: ScriptedGate) -> None:
        self.gate = gate
        self.wall_us = 1_000

    def now(self) -> int:
        now: int = self.gate.ask("time", lambda: self.wall_us)
        return now


class ScriptedContext:
    """An OperatorContext of plain attributes."""

    def __init__(self, groups: range = range(128), gate: ScriptedGate | None = None) -> None:
        self.task = TaskId("vertex", 0)
        self.operator = "probe"
        self.parallelism = 1
        self.groups = groups
        self.key_groups = 128
        self.watermark = MIN_TIME
        self.frame: tuple[int, int] = (0, 1)
        self.numbering = "line-0"
        self.may_repeat = False
        self.gate = gate or ScriptedGate()
        self.time = ScriptedClock(self.gate)
        self.random = random.Random(7)
        self.services: dict[str, Any] = {}
        self.timers: set[int] = set()
        self.counted: Counter[str] = Counter()
        self.metrics: dict[str, UserMetric] = {}
        self.calls: dict[int, tuple[str, Any]] = {}
        self.holds = (False, False)

    def service(self, name: str) -> Any:
        found = self.services[name]
        return found() if isinstance(found, type) else found

    def set_timer(self, at: int) -> None:
        self.timers.add(at)

    def clear_timer(self, at: int) -> None:
        self.timers.discard(at)

    def start_call(self, number: int, service: str, question: Any) -> None:
        assert number not in self.calls
        self.calls[number] = (service, question)

    def cancel_call(self, number: int) -> None:
        self.calls.pop(number, None)

    def hold(self, any_: bool, enough: bool) -> None:
        self.holds = (any_, enough)

    def count(self, metric: str, amount: int) -> None:
        self.counted[metric] += amount

    def measure(self, definition: MetricDefinition, amount: float) -> None:
        self.metrics[definition.name] = after(self.metrics.get(definition.name), definition, amount)


class Collected:
    """Rows emitted, by port, as dicts."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, pa.RecordBatch]] = []

    def emit(self, rows: pa.RecordBatch, port: int = 0) -> None:
        rows.validate(full=True)
        self.batches.append((port, rows))

    def rows(self, port: int = 0) -> list[dict[str, Any]]:
        return [row for at, batch in self.batches if at == port for row in batch.to_pylist()]

    def take(self, port: int = 0) -> list[dict[str, Any]]:
        rows = self.rows(port)
        self.batches = [(at, batch) for at, batch in self.batches if at != port]
        return rows


def opened(operator: Operator, ctx: ScriptedContext | None = None) -> tuple[ScriptedContext, Collected]:
    ctx, out = ctx or ScriptedContext(), Collected()
    operator.open(ctx, out)
    return ctx, out


def advance(operator: Operator, ctx: ScriptedContext, watermark: int) -> int:
    """Advances event time as a task does."""
    ctx.watermark = watermark
    return operator.on_watermark(watermark)


def stored(state: OperatorState) -> OperatorState:
    """The state after storage: equal content, nothing shared."""

    def copied(chunk: Chunk) -> Chunk:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, chunk.rows.schema) as writer:
            writer.write_batch(chunk.rows)
        return Chunk(pa.ipc.open_stream(sink.getvalue()).read_next_batch())

    return OperatorState({name: [copied(c) for c in chunks] for name, chunks in state.tables.items()}, state.values)


def read_by(parts: Sequence[OperatorState], groups: range) -> list[OperatorState]:
    """The state as a task gets it that owns these key groups: of other chunks it reads nothing."""

    def given(chunk: Chunk) -> Chunk:
        found = StoredChunk("somewhere", chunk.rows.num_rows, 0, 0, chunk.groups).within(groups)
        return found.unread() if found.of_others else chunk

    return [OperatorState({n: list(map(given, chunks)) for n, chunks in p.tables.items()}, p.values) for p in parts]


class Instances:
    """All instances of one operator, each with the rows of its key groups. They begin as one."""

    def __init__(self, make: Callable[[], Operator]) -> None:
        self._make = make
        self._start([], 1)

    def _start(self, parts: Sequence[OperatorState], count: int) -> None:
        owned = [range(128 * number // count, 128 * (number + 1) // count) for number in range(count)]
        self._running = [self._started(parts, groups) for groups in owned]

    def _started(self, parts: Sequence[OperatorState], groups: range) -> tuple[Operator, ScriptedContext, Collected]:
        operator = self._make()
        ctx, out = opened(operator, ScriptedContext(groups))
        operator.restore(read_by(parts, ctx.groups))
        return operator, ctx, out

    def go_on_as(self, count: int) -> None:
        """So many others start from the snapshots of these, and one more without a row."""
        parts = [stored(operator.snapshot()) for operator, _, _ in self._running]
        self._start(parts, count)
        chunks = [chunk for part in parts for table in part.tables.values() for chunk in table]
        spans = [range(chunk.groups[0], chunk.groups[1] + 1) for chunk in chunks if chunk.groups is not None]
        free = next((group for group in range(128) if not any(group in span for span in spans)), None)
        if free is not None:
            self._started(parts, range(free, free + 1))

    def on_rows(self, rows: pa.RecordBatch, key: str, side: int = 0) -> None:
        groups = key_groups(rows, [key], 128) if rows.num_rows else np.empty(0, np.int32)
        for operator, ctx, _ in self._running:
            operator.on_rows(rows.filter(pa.array((groups >= ctx.groups.start) & (groups < ctx.groups.stop))), side)

    def advance(self, watermark: int) -> None:
        """Advances event time in all of them."""
        for operator, ctx, _ in self._running:
            advance(operator, ctx, watermark)

    def on_settled(self, side: int) -> None:
        for operator, _, _ in self._running:
            operator.on_settled(side)

    def emitted(self) -> list[dict[str, Any]]:
        """The rows that they have emitted."""
        return [row for _, _, out in self._running for row in out.rows()]

    def on_end(self) -> list[list[dict[str, Any]]]:
        """The rows that each has emitted."""
        for operator, _, _ in self._running:
            operator.on_end()
        return [out.rows() for _, _, out in self._running]


@contextmanager
def compacted_early(*further: tuple[ModuleType, str, int]) -> Iterator[None]:
    """State is compacted and cut into chunks as if it were large; ``further`` constants have other values, too."""
    with pytest.MonkeyPatch.context() as patch:
        for module, name, value in ((keyed_rows, "_DEAD_ROWS", 2), (keyed_rows, "_CHUNK_ROWS", 8), *further):
            patch.setattr(module, name, value)
        yield


def schema(*columns: tuple[str, pa.DataType], required: tuple[str, ...] = ()) -> pa.Schema:
    """Columns by name and type; those ``required`` hold no nulls."""
    fields: list[pa.Field[Any]] = [pa.field(name, type_, nullable=name not in required) for name, type_ in columns]
    return pa.schema(fields)
