"""One trial of a job's operators, in a separate process: each operator runs alone, on the rows of the one before it.

The first trial records the questions to ``ctx``, the answers and the outputs of operators, and makes sinks write to a
hidden place. It runs each operator twice: state in variables of the process is still there the second time. The second
trial passes each operator the same rows and answers, with another hash seed and with a clock that is more than a day
ahead. Run as ``python -m clonos_py.runtime.check.trial SPEC RESULT``.
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
from clonos_py.dsl.loading import load_job_file
from clonos_py.model.connectors import SinkDefinition
from clonos_py.model.errors import ClonosError, ServiceError, UserCodeError, type_and_text
from clonos_py.model.operators import Operator
from clonos_py.model.places import blamed, located
from clonos_py.model.times import MAX_TIME
from clonos_py.operators.failures import shortened
from clonos_py.plan.factories import operator_plan
from clonos_py.plan.logical import (
    CallPerRow,
    LogicalGraph,
    LookUpRows,
    Node,
    ReadSource,
    RunProcess,
    Spread,
    Unite,
    WriteSink,
)
from clonos_py.runtime.callers import http_client
from clonos_py.runtime.check.call_monitor import CallMonitor, expose_numpy
from clonos_py.runtime.check.context import NOT_CALLED, CheckedContext
from clonos_py.runtime.check.findings import Finding
from clonos_py.runtime.check.samples import sampled
from clonos_py.runtime.crash_notes import write_notes_to
from clonos_py.services.registry import ServiceRegistry
from clonos_py.task.at_work import NOTE, label, runs_operators

_BATCH_ROWS = 16
_ROUNDS_MAX = 10_000
"""The limit of timers and calls that are handled in a row: each may set or start others."""


class OperatorTrial(msgspec.Struct):
    """The trial of one operator. ``rows_in``: the number of input rows. ``output``: the output by port. ``failed``: the
    number of rows that failed, ``reason`` the first reason. ``error``: why the operator itself failed.

    ``caught``: the job catches rows that fail. ``made_up``: the input rows are made up. ``refused``: a service was not
    called. ``skipped``: a sink that was not run, because it would have made its rows visible."""

    name: str
    where: str
    output: list[bytes]
    log: list[list[Any]] = []
    rows_in: int = 0
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

    operators: list[OperatorTrial] = []
    repeated: list[OperatorTrial] = []
    sinks: list[OperatorTrial] = []
    findings: list[Finding] = []


class TrialSpec(msgspec.Struct):
    """What to try, and how. ``before``: the first trial, if this is the second."""

    file: str
    parameters: dict[str, Any]
    rows: int
    live: bool
    ahead_us: int
    before: CheckTrial | None = None


class _Output:
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
    def __init__(self, spec: TrialSpec, watch: CallMonitor, folder: str) -> None:
        self._spec, self._watch, self._folder = spec, watch, folder
        self._before = {trial.name: trial for trial in spec.before.operators} if spec.before else {}
        self._rows: dict[int, list[pa.RecordBatch]] = {}
        self._made_up: set[int] = set()
        self._registry = ServiceRegistry({}, http_client)
        self._client_of: Callable[[str], Any] = self._registry.client if spec.live else _refused

    def run(self, graph: LogicalGraph) -> CheckTrial:
        found = CheckTrial()
        for node in graph.nodes:
            inputs = [self._rows[port.node][port.port] for port in node.inputs]
            if isinstance(node.work, Unite | Spread):
                self._rows[node.id] = [concat([rows.select(node.schemas[0].names) for rows in inputs])]
            elif not isinstance(node.work, WriteSink):
                before = self._before.get(node.name)
                if isinstance(node.work, ReadSource):
                    trial = self._source(node)
                else:
                    trial = self._operator(node, inputs, before)
                    if before is None:
                        found.repeated.append(self._operator(node, inputs, trial))
                found.operators.append(trial)
                before = before or trial
                self._rows[node.id] = [_decoded(rows) for rows in before.output]
            elif self._spec.before is None:
                found.sinks.append(self._sink(node, node.work.definition, inputs[0]))
            if self._has_made_up(node):
                self._made_up.add(node.id)
        return found

    def _source(self, node: Node) -> OperatorTrial:
        if node.name in self._before:
            return self._before[node.name]
        sample = sampled(node, self._spec.rows)
        if sample.made_up:
            self._made_up.add(node.id)
        output = [_encoded(batch) for batch in sample.rows]
        return OperatorTrial(node.name, node.where, output, error=sample.error, source=True, made_up=sample.made_up)

    def _operator(self, node: Node, inputs: list[pa.RecordBatch], before: OperatorTrial | None) -> OperatorTrial:
        """Runs an operator. ``before``: its earlier trial, whose answers are replayed."""
        ctx = CheckedContext(node.name, before.log if before else None, self._client_of)
        output = _Output()
        trial = self._begun(node, inputs)
        with _recording_errors(trial):
            operator = operator_plan(_catching(node), inputs[0].schema).factory()
            operator.open(ctx, output)
            operator.restore(())
            with self._watch.at(node.name):
                _work(trial, operator, ctx, inputs)
        trial.log = ctx.gate.log
        trial.refused = any(NOT_CALLED in (error or "") for _, _, error in ctx.gate.log)
        trial.output = [_encoded(output.rows(port, schema)) for port, schema in enumerate(node.schemas)]
        trial.failed = ctx.counted.get("dead_letters", 0)
        trial.reason = output.first_error() if trial.failed else ""
        return trial

    def _sink(self, node: Node, definition: SinkDefinition, rows: pa.RecordBatch) -> OperatorTrial:
        """Makes a sink write rows, and prepare a checkpoint that is never completed."""
        trial = self._begun(node, [rows])
        trial_sink = definition.on_trial(str(Path(self._folder, node.name))) or (
            definition if self._spec.live else None
        )
        if trial_sink is None:
            trial.skipped = True
            return trial
        ctx = CheckedContext(node.name, None, self._client_of)
        with _recording_errors(trial):
            sink = trial_sink.create(rows.schema)
            sink.open(ctx, _Output())
            try:
                sink.restore(())
                _work(trial, sink, ctx, [rows])
                sink.prepare(1)
            finally:
                sink.close()
        return trial

    def _begun(self, node: Node, inputs: list[pa.RecordBatch]) -> OperatorTrial:
        rows_in = sum(rows.num_rows for rows in inputs)
        caught = isinstance(node.work, CallPerRow | LookUpRows | RunProcess) and node.work.catch
        return OperatorTrial(node.name, node.where, [], rows_in=rows_in, caught=caught, made_up=self._has_made_up(node))

    def _has_made_up(self, node: Node) -> bool:
        return any(port.node in self._made_up for port in node.inputs)


@contextmanager
def _recording_errors(trial: OperatorTrial) -> Iterator[None]:
    """Records the error with which an operator fails."""
    try:
        yield
    except ClonosError as problem:
        trial.error = str(located(problem, trial.where) if isinstance(problem, UserCodeError) else problem)
    except BaseException as problem:  # noqa: BLE001 - user code may raise anything; all is reported
        trial.error = str(located(blamed(type_and_text(problem), problem), trial.where))


@runs_operators
def _work(stage: OperatorTrial, operator: Operator, ctx: CheckedContext, inputs: list[pa.RecordBatch]) -> None:
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
    if isinstance(node.work, CallPerRow | LookUpRows | RunProcess):
        return replace(node, work=replace(node.work, catch=True))
    return node


def _refused(name: str) -> Any:
    raise ServiceError(f"{name}: {NOT_CALLED}")


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


def main(spec_file: str, result_file: str) -> None:
    spec = msgspec.msgpack.decode(Path(spec_file).read_bytes(), type=TrialSpec)
    write_notes_to(Path(result_file).parent)
    if spec.ahead_us:
        _set_clocks(spec.ahead_us)
    expose_numpy()
    watch = CallMonitor()
    job = load_job_file(spec.file).job(spec.parameters)
    found = _Trials(spec, watch, str(Path(result_file).parent)).run(job.graph())
    found.findings = watch.findings
    Path(result_file).write_bytes(msgspec.msgpack.encode(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
