"""One trial of a job's operators, in a separate process: each operator runs alone, on the rows of the one before it.

The first trial records the questions to ``ctx``, the answers and the outputs of operators, and makes sinks write to a
hidden place. It runs each operator twice: state in variables of the process is still there the second time. The second
trial passes each operator the same rows and answers, with another hash seed and with a clock that is more than a day
ahead. Run as ``python -m clonos_py.runtime.check.trial ORDER RESULT``.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from clonos_py.columns.views import concat
from clonos_py.connectors.http import HttpxClient
from clonos_py.dsl.loading import load_job_file
from clonos_py.model.connectors import SinkDefinition
from clonos_py.model.errors import ClonosError, ServiceError, UserCodeError
from clonos_py.model.operators import Operator
from clonos_py.model.places import blamed, located
from clonos_py.model.times import MAX_TIME
from clonos_py.operators.failures import shortened
from clonos_py.plan.factories import operator_plan
from clonos_py.plan.logical import CallPerRow, LogicalGraph, Node, ReadSource, RunProcess, Spread, Unite, WriteSink
from clonos_py.runtime.check.call_monitor import CallMonitor, expose_numpy
from clonos_py.runtime.check.context import NOT_ASKED, CheckedContext
from clonos_py.runtime.check.findings import Finding
from clonos_py.runtime.check.samples import sampled
from clonos_py.runtime.crash_notes import leave_in
from clonos_py.services.registry import ServiceRegistry
from clonos_py.task.at_work import NOTE, label, runs_operators

_BATCH_ROWS = 16
_ROUNDS_MAX = 10_000
"""The limit of timers and calls that are handled in a row: each may set or start others."""


class Tried(msgspec.Struct):
    """The trial of one operator. ``taken``: the number of input rows. ``given``: the output by port. ``failed``: the
    number of rows that failed, ``reason`` the first reason. ``error``: why the operator itself failed.

    ``caught``: the job catches rows that fail. ``made_up``: the input rows are made up. ``refused``: a service was not
    called. ``skipped``: a sink that was not run, because it would have made its rows visible."""

    name: str
    where: str
    given: list[bytes]
    log: list[list[Any]] = []
    taken: int = 0
    failed: int = 0
    reason: str = ""
    error: str = ""
    source: bool = False
    made_up: bool = False
    caught: bool = False
    refused: bool = False
    skipped: bool = False


class CheckTrial(msgspec.Struct):
    """The results of one trial. ``repeated``, of the first trial only: the results of all operators except sources,
    when the same process created them again and passed them the same rows and answers."""

    operators: list[Tried] = []
    repeated: list[Tried] = []
    sinks: list[Tried] = []
    findings: list[Finding] = []


class TrialSpec(msgspec.Struct):
    """The order for a trial. ``before``: the first trial, if this is the second."""

    file: str
    parameters: dict[str, Any]
    rows: int
    live: bool
    ahead_us: int
    before: CheckTrial | None = None


class _Given:
    """The output of an operator under trial. Dead letters are on the last port."""

    def __init__(self) -> None:
        self.batches: dict[int, list[pa.RecordBatch]] = {}

    def emit(self, rows: pa.RecordBatch, port: int = 0) -> None:
        self.batches.setdefault(port, []).append(rows)

    def rows(self, port: int, schema: pa.Schema) -> pa.RecordBatch:
        batches = self.batches.get(port)
        return concat(batches) if batches else pa.RecordBatch.from_pylist([], schema)

    def first_error(self) -> str:
        letter = self.batches[max(self.batches)][0].slice(0, 1).to_pylist()[0]
        return f"{letter['error']}, on {shortened(letter['record'])}; at {letter['place']}"


class _Trials:
    def __init__(self, order: TrialSpec, watch: CallMonitor, folder: str) -> None:
        self._order, self._watch, self._folder = order, watch, folder
        self._before = {tried.name: tried for tried in order.before.operators} if order.before else {}
        self._rows: dict[int, list[pa.RecordBatch]] = {}
        self._made_up: set[int] = set()
        self._registry = ServiceRegistry({}, HttpxClient)
        self._client_of: Callable[[str], Any] = self._registry.client if order.live else _refused

    def run(self, graph: LogicalGraph) -> CheckTrial:
        found = CheckTrial()
        for node in graph.nodes:
            inputs = [self._rows[port.node][port.port] for port in node.inputs]
            if isinstance(node.work, Unite | Spread):
                self._rows[node.id] = [concat([rows.select(node.schemas[0].names) for rows in inputs])]
            elif not isinstance(node.work, WriteSink):
                before = self._before.get(node.name)
                if isinstance(node.work, ReadSource):
                    tried = self._source(node)
                else:
                    tried = self._operator(node, inputs, before)
                    if before is None:
                        found.repeated.append(self._operator(node, inputs, tried))
                found.operators.append(tried)
                before = before or tried
                self._rows[node.id] = [_decoded(rows) for rows in before.given]
            elif self._order.before is None:
                found.sinks.append(self._sink(node, node.work.definition, inputs[0]))
            if self._has_made_up(node):
                self._made_up.add(node.id)
        return found

    def _source(self, node: Node) -> Tried:
        if node.name in self._before:
            return self._before[node.name]
        sample = sampled(node, self._order.rows)
        if sample.made_up:
            self._made_up.add(node.id)
        given = [_encoded(batch) for batch in sample.rows]
        return Tried(node.name, node.where, given, error=sample.error, source=True, made_up=sample.made_up)

    def _operator(self, node: Node, inputs: list[pa.RecordBatch], before: Tried | None) -> Tried:
        """Runs an operator. ``before``: its earlier trial, whose answers are replayed."""
        ctx = CheckedContext(node.name, before.log if before else None, self._client_of)
        given = _Given()
        tried = self._begun(node, inputs)
        with _told(tried):
            operator = operator_plan(_catching(node), inputs[0].schema).factory()
            operator.open(ctx, given)
            operator.restore(())
            with self._watch.at(node.name):
                _work(tried, operator, ctx, inputs)
        tried.log = ctx.gate.log
        tried.refused = any(NOT_ASKED in (error or "") for _, _, error in ctx.gate.log)
        tried.given = [_encoded(given.rows(port, schema)) for port, schema in enumerate(node.schemas)]
        tried.failed = ctx.counted.get("dead_letters", 0)
        tried.reason = given.first_error() if tried.failed else ""
        return tried

    def _sink(self, node: Node, definition: SinkDefinition, rows: pa.RecordBatch) -> Tried:
        """Makes a sink write rows, and prepare a checkpoint that is never completed."""
        tried = self._begun(node, [rows])
        trial = definition.on_trial(str(Path(self._folder, node.name))) or (definition if self._order.live else None)
        if trial is None:
            tried.skipped = True
            return tried
        ctx = CheckedContext(node.name, None, self._client_of)
        with _told(tried):
            sink = trial.create(rows.schema)
            sink.open(ctx, _Given())
            try:
                sink.restore(())
                _work(tried, sink, ctx, [rows])
                sink.prepare(1)
            finally:
                sink.close()
        return tried

    def _begun(self, node: Node, inputs: list[pa.RecordBatch]) -> Tried:
        taken = sum(rows.num_rows for rows in inputs)
        caught = isinstance(node.work, CallPerRow | RunProcess) and node.work.catch
        return Tried(node.name, node.where, [], taken=taken, caught=caught, made_up=self._has_made_up(node))

    def _has_made_up(self, node: Node) -> bool:
        return any(port.node in self._made_up for port in node.inputs)


@contextmanager
def _told(tried: Tried) -> Iterator[None]:
    """Records the error with which an operator fails."""
    try:
        yield
    except ClonosError as problem:
        tried.error = str(located(problem, tried.where) if isinstance(problem, UserCodeError) else problem)
    except BaseException as problem:  # noqa: BLE001 - user code may raise anything; all is reported
        tried.error = str(located(blamed(f"{type(problem).__name__}: {problem}", problem), tried.where))


@runs_operators
def _work(stage: Tried, operator: Operator, ctx: CheckedContext, inputs: list[pa.RecordBatch]) -> None:
    """Passes all rows to an operator, the sides in turn; then the end of event time, and the end of input."""
    NOTE.content[:] = label(stage.name)
    sequence = 0
    for start in range(0, max(rows.num_rows for rows in inputs), _BATCH_ROWS):
        for side, rows in enumerate(inputs):
            if start < rows.num_rows:
                ctx.frame, sequence = (side, sequence), sequence + 1
                operator.on_rows(rows.slice(start, _BATCH_ROWS), side)
                _settle(operator, ctx, timers=False)
    ctx.watermark = MAX_TIME
    operator.on_watermark(MAX_TIME)
    _settle(operator, ctx, timers=True)
    operator.on_end()


def _settle(operator: Operator, ctx: CheckedContext, timers: bool) -> None:
    """Answers pending calls. ``timers``: fires timers when no call is pending."""
    for _ in range(_ROUNDS_MAX):
        if ctx.calls:
            number = next(iter(ctx.calls))
            operator.on_answer(number, *ctx.answer(number))
        elif timers and ctx.timers:
            at = min(ctx.timers)
            ctx.timers.discard(at)
            operator.on_timer(at)
        else:
            return


def _catching(node: Node) -> Node:
    """The node with ``catch`` set, so that rows that fail do not end the trial."""
    if isinstance(node.work, CallPerRow | RunProcess):
        return replace(node, work=replace(node.work, catch=True))
    return node


def _refused(name: str) -> Any:
    raise ServiceError(f"{name}: {NOT_ASKED}")


def _encoded(rows: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    return sink.getvalue().to_pybytes()


def _decoded(data: bytes) -> pa.RecordBatch:
    return pa.ipc.open_stream(data).read_next_batch()


def _set_clocks(ahead_us: int) -> None:
    """Shifts the clocks of ``time`` before user code imports them: code that bypasses ``ctx.time`` gets another day."""
    real, real_ns = time.time, time.time_ns
    time.time = lambda: real() + ahead_us / 1e6
    time.time_ns = lambda: real_ns() + ahead_us * 1_000


def main(order_file: str, result_file: str) -> None:
    order = msgspec.msgpack.decode(Path(order_file).read_bytes(), type=TrialSpec)
    leave_in(Path(result_file).parent)
    if order.ahead_us:
        _set_clocks(order.ahead_us)
    expose_numpy()
    watch = CallMonitor()
    job = load_job_file(order.file).job(order.parameters)
    found = _Trials(order, watch, str(Path(result_file).parent)).run(job.graph())
    found.findings = watch.findings
    Path(result_file).write_bytes(msgspec.msgpack.encode(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
